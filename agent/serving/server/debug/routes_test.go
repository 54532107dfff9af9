package debug

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func TestRoutes(t *testing.T) {
	mux := http.NewServeMux()
	for _, r := range slices.Concat(Profiles(), Status([]string{"/pods", "/metrics"}),
		Flags(map[string]string{"root-dir": "/x"})) {
		mux.Handle(r.Method+" "+r.Pattern, r.Handler)
	}
	c := Configz(&kubeletv1beta1.KubeletConfiguration{MaxPods: 7})
	mux.Handle(c.Method+" "+c.Pattern, c.Handler)
	l := LogLevel()
	mux.Handle(l.Method+" "+l.Pattern, l.Handler)
	ask := func(method, path, body string) (int, string) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		return w.Code, w.Body.String()
	}
	for _, tc := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/configz", "", 200, `"maxPods": 7`},
		{"GET", "/configz", "", 200, `"kubeletconfig": {`},
		{"GET", "/debug/pprof/", "", 200, "goroutine"},
		{"GET", "/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile: total"},
		{"GET", "/debug/pprof/cmdline", "", 200, "debug.test"},
		{"GET", "/debug/pprof/symbol", "", 200, "num_symbols"},
		{"POST", "/debug/pprof/symbol", "0", 200, "num_symbols"},
		{"GET", "/statusz", "", 200, "kubelet statusz"},
		{"GET", "/statusz", "", 200, "/metrics"},
		{"GET", "/flagz", "", 200, "/x\n"},
		{"PUT", "/debug/flags/v", "five", 400, "invalid syntax"},
		{"PUT", "/debug/flags/v", strings.Repeat("1", 200), 400, "value out of range"},
		{"GET", "/debug/flags/v", "", 405, ""},
	} {
		code, body := ask(tc.method, tc.path, tc.body)
		if code != tc.code || !strings.Contains(body, tc.want) {
			t.Errorf("%s %s: %d %.300q, want %d with %q", tc.method, tc.path, code, body, tc.code,
				tc.want)
		}
	}
	before := "0"
	if klog.V(7).Enabled() {
		t.Fatal("the level is high already")
	}
	if code, body := ask("PUT", "/debug/flags/v", "7"); code != 200 || !klog.V(7).Enabled() ||
		body != "successfully set klog.logging.verbosity to 7" {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := ask("PUT", "/debug/flags/v", before); code != 200 || klog.V(7).Enabled() {
		t.Errorf("%d, back to %s", code, before)
	}
}
