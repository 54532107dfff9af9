package explain

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type decided map[string]Record // by NAMESPACE/NAME

func (d decided) Explained(_ context.Context, namespace, name string) (Record, bool) {
	r, ok := d[namespace+"/"+name]
	return r, ok
}

func TestRoute(t *testing.T) {
	record := Record{}
	record.Subject.Name, record.Outcome = "web-node", "Admit"
	waits := Record{}
	waits.Subject.Name, waits.Outcome = "waits-node", "Wait"
	route := Route(decided{"default/web-node": record, "default/waits-node": waits}, "node",
		func(_, name string) bool { return name == "queued" },
		func(namespace, name string) Remarks {
			return Remarks{Since: []string{namespace + "/" + name + " broke"},
				Logs:    []Log{{Container: "broken", Path: "/0.log"}},
				Plugins: []string{name + "'s plugin is wrong"}}
		})
	mux := http.NewServeMux()
	mux.Handle(route.Pattern, route.Handler)
	for _, tc := range []struct {
		pod  string
		code int
		want string
	}{
		{"web-node", 200, `"web-node"`},
		{"web-node", 200, `default/web-node broke`},
		{"web-node", 200, `/0.log`},
		{"waits-node", 200, `"Wait"`},
		{"waits-node", 200, `waits-node's plugin is wrong`},
		{"web", 200, `default/web-node broke`},
		{"queued", 404, "still in the queue\n  - default/queued broke\n"},
		{"other", 404, "numalet problems (/problems) the manifests"},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest("GET", "/debug/admission/default/"+tc.pod, nil))
		if tc.pod == "waits-node" && strings.Contains(w.Body.String(), "broke") {
			t.Errorf("of a pod that waits is said what happened after its admission: %s", w.Body)
		}
		if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s: %d %s, want %d with %q", tc.pod, w.Code, w.Body, tc.code, tc.want)
		}
	}
}
