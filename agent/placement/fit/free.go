package fit

import (
	"context"
	"net/http"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/serving/server"
)

// FreeRoute answers what is free of the resources that the node hands out by NUMA node.
func FreeRoute(q interface {
	Snapshot(ctx context.Context) (decide.Snapshot, error)
}) server.Route {
	return server.Get("/free", func(w http.ResponseWriter, r *http.Request) {
		s, err := q.Snapshot(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		server.WriteJSON(w, s.Free())
	})
}
