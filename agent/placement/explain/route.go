package explain

import (
	"context"
	"fmt"
	"net/http"

	"github.com/numalet/numalet/internal/route"
)

// decisions explains those of admission.
type decisions interface {
	Explained(ctx context.Context, namespace, name string) (Record, bool)
}

// Route answers why a pod was admitted, waits or was rejected on the node, and what has gone wrong
// with it since, and with its device plugins. A static pod is also found by the name on its manifest. A pod that was
// not decided on may still be known to the agent.
func Route(q decisions, node string, known func(namespace, name string) bool,
	amiss func(namespace, name string) Remarks) route.Route {
	return route.Get("/debug/admission/{namespace}/{pod}", func(
		w http.ResponseWriter, r *http.Request) {
		namespace, name := r.PathValue("namespace"), r.PathValue("pod")
		static := name + "-" + node // what the pod of a manifest is called
		record, ok := q.Explained(r.Context(), namespace, name)
		if !ok && !known(namespace, name) {
			if record, ok = q.Explained(r.Context(), namespace, static); ok || known(namespace, static) {
				name = static
			}
		}
		if ok {
			wrong := amiss(namespace, name)
			record.Remarks.Plugins = wrong.Plugins
			if record.Outcome == "Admit" {
				record.Remarks.Since, record.Remarks.Logs = wrong.Since, wrong.Logs
			}
			route.WriteJSON(w, record)
			return
		}
		why := fmt.Sprintf("no pod %s/%s is known; numalet pods (/pods) lists those that are, and numalet "+
			"problems (/problems) the manifests that were refused", namespace, name)
		if known(namespace, name) {
			why = fmt.Sprintf("pod %s/%s is not decided on in this run of the agent: it has "+
				"ended, or it is still in the queue", namespace, name)
			for _, since := range amiss(namespace, name).Since {
				why += "\n  - " + since
			}
		}
		http.Error(w, why, http.StatusNotFound)
	})
}
