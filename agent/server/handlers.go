package server

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// getOnly answers every method but GET and HEAD with 405.
func getOnly(next http.Handler) http.Handler {
	return only(next, http.MethodGet, http.MethodHead)
}

// only answers every method but these with 405.
func only(next http.Handler, methods ...string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(methods, r.Method) {
			w.Header().Set("Allow", strings.Join(methods, ", "))
			http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// podsHandler answers with a v1.PodList.
func podsHandler(pods func() []*v1.Pod) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		list := v1.PodList{
			TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
			Items:    []v1.Pod{},
		}
		if pods != nil {
			for _, pod := range pods() {
				list.Items = append(list.Items, *pod)
			}
		}
		text, err := json.Marshal(list)
		if err != nil {
			http.Error(w, "encode pods: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // an error means that the client is gone
	})
}
