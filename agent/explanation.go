package agent

import (
	"fmt"
	"net/http"
)

// explanation answers why a pod was admitted, waits or was rejected, for the path's namespace and
// pod.
func (a *Agent) explanation(w http.ResponseWriter, r *http.Request) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	record, ok := a.queue.Explained(namespace, name)
	if !ok {
		http.Error(w, a.unexplained(namespace, name), http.StatusNotFound)
		return
	}
	asJSON(func() any { return record }).ServeHTTP(w, r)
}

// unexplained says what to do about a pod without an explanation.
func (a *Agent) unexplained(namespace, name string) string {
	manifest := name + "-" + a.facts.name
	if _, ok := a.queue.Explained(namespace, manifest); ok {
		return fmt.Sprintf("no pod %s/%s was decided on; the pod of that manifest is %s", namespace,
			name, manifest)
	}
	for _, pod := range a.pods.list() {
		if pod.Namespace == namespace && pod.Name == name {
			return fmt.Sprintf("pod %s/%s is not decided on in this run of the agent: it has "+
				"ended, or it is still in the queue", namespace, name)
		}
	}
	return fmt.Sprintf("no pod %s/%s is known; /pods lists those that are, and /problems the "+
		"manifests that were refused", namespace, name)
}
