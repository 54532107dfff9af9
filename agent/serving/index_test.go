package serving

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/numalet/numalet/internal/route"
)

// TestIndex: the page lists each path once with its methods, and nothing else is answered in its place.
func TestIndex(t *testing.T) {
	answer := func(http.ResponseWriter, *http.Request) {}
	r := index([]route.Route{
		route.Get("/pods", answer), route.Get("/exec/{namespace}/{pod}", answer),
		{Method: http.MethodPost, Pattern: "/exec/{namespace}/{pod}"}, route.Get("/stats/{$}", answer),
	})
	mux := http.NewServeMux()
	mux.Handle(r.Pattern, r.Handler)
	for path, want := range map[string]string{
		"/": `GET       /exec/{namespace}/{pod}  a stream to a command in a container
GET       /healthz                 whether the agent is healthy; /healthz?verbose has each check: numalet status
GET       /pods                    pods with their statuses: numalet pods
GET       /stats/                  the node's statistics
`,
		"/else": "404 page not found\n",
	} {
		want = strings.Replace(want, "GET       /exec", "GET,POST  /exec", 1)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Body.String() != want {
			t.Errorf("%s:\n%s\nwant\n%s", path, w.Body, want)
		}
	}
}
