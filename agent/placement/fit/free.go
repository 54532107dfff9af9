package fit

import (
	"context"
	"net/http"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/internal/route"
)

// FreeRoute answers what is free of the resources that the node hands out by NUMA node, and of others.
func FreeRoute(q interface {
	Snapshot(ctx context.Context) (decide.Snapshot, error)
}, others func() []explain.Supply) route.Route {
	return route.Get("/free", func(w http.ResponseWriter, r *http.Request) {
		s, err := q.Snapshot(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		route.WriteJSON(w, append(s.Free(), others()...))
	})
}
