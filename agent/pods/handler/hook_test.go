package handler

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/numalet/numalet/internal/podtest"
)

func (h *Handlers) runs(ctx context.Context, hook v1.LifecycleHandler, t Target) string {
	fallback, err := h.Run(ctx, &hook, t)
	if err != nil {
		return "error: " + err.Error()
	}
	return "done " + fallback
}

// hooked is the pod of the containers with hooks.
var hooked = podtest.New("n/p", podtest.UID("u"))

func TestHooks(t *testing.T) {
	h := New(Config{Runtime: runtime(func(_ string, words []string, timeout time.Duration) (
		string, string, error) {
		if timeout != 0 {
			t.Errorf("a hook has the timeout %v", timeout)
		}
		if words[0] == "bad" {
			return "so", "what", errors.New("exited with 1")
		}
		return "", "", nil
	})})
	c := Target{Pod: hooked, Container: &v1.Container{Name: "c"}, ID: "id"}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		ctx  context.Context
		hook v1.LifecycleHandler
		want string
	}{
		{t.Context(), v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"good"}}}, "done "},
		{t.Context(), v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"bad", "x"}}},
			`error: Exec lifecycle hook ([bad x]) for Container "c" in Pod "p_n(u)" failed - ` +
				`error: exited with 1, ` +
				`message: "sowhat"`},
		{t.Context(), v1.LifecycleHandler{Sleep: &v1.SleepAction{}}, "done "},
		{over, v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 3600}},
			`error: Sleep lifecycle hook (3600) for Container "c" in Pod "p_n(u)" failed - ` +
				`error: container ` +
				`terminated before sleep hook finished`},
		{t.Context(), v1.LifecycleHandler{TCPSocket: &v1.TCPSocketAction{}},
			"error: " + errNoHook.Error()},
		{t.Context(), v1.LifecycleHandler{}, "error: " + errNoHook.Error()},
	} {
		if got := h.runs(tc.ctx, tc.hook, c); got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}

// Any answer is a success. A server without TLS is asked again once, without credentials.
func TestHTTPHook(t *testing.T) {
	var asked []string
	handle := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.UserAgent()+" "+r.Header.Get("Authorization"))
		w.WriteHeader(http.StatusInternalServerError)
	})
	plain, secure := httptest.NewServer(handle), httptest.NewTLSServer(handle)
	defer plain.Close()
	defer secure.Close()
	h := newTest()
	run := func(server *httptest.Server, scheme v1.URIScheme) string {
		u, _ := url.Parse(server.URL)
		target, port := at(t, u.Host)
		target.Pod = hooked
		return h.runs(within(t, time.Minute), v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
			Scheme: scheme, Port: intstr.FromInt32(port), Path: "/stop",
			HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "me"}},
		}}, target)
	}
	host := strings.TrimPrefix(plain.URL, "http://")
	for _, got := range [][2]string{
		{run(plain, "HTTP"), "done "}, {run(secure, "HTTPS"), "done "},
		{run(plain, "HTTPS"), "done " + host},
	} {
		if got[0] != got[1] {
			t.Errorf("%q, want %q", got[0], got[1])
		}
	}
	want := []string{"kube-lifecycle/1.37 me", "kube-lifecycle/1.37 me", "kube-lifecycle/1.37 "}
	if strings.Join(asked, ",") != strings.Join(want, ",") {
		t.Errorf("asked as %q, want %q", asked, want)
	}
	plain.Close()
	if got := run(plain, "HTTP"); !strings.HasPrefix(got,
		`error: HTTP lifecycle hook (/stop) for Container "c" in Pod "p_n(u)" failed - error: Get `) {
		t.Errorf("nobody there: %q", got)
	}
}
