package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// Route is what answers requests of one method. Packages export the routes to what they know;
// which listener has them is said where the parts are joined.
type Route struct {
	// Method is an HTTP method; HEAD is answered where GET is. "": every method.
	Method string
	// Pattern is one of http.ServeMux, without a method.
	Pattern string
	Handler http.Handler
	// Slash: the path may end with a slash, as old clients write it.
	Slash bool
	// Stream: the answer is sent as it is made, and goes on for as long as it takes. Others are made
	// in memory first, one for all who ask for the same at the same time.
	Stream bool
}

// PodsRoute lists pods as a v1.PodList.
func PodsRoute(pods func() []*v1.Pod) Route {
	return Route{Method: http.MethodGet, Pattern: "/pods", Slash: true, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { answerList(w, pods()) })}
}

func answerList(w http.ResponseWriter, pods []*v1.Pod) {
	list := v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items:    []v1.Pod{},
	}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	text, err := json.Marshal(list)
	answer(w, text, err)
}

// AllocatedRoutes list the pods that have not ended as what they were admitted with, and have one of
// them by its name, or by that and its UID (KubeletAllocatedPodsEndpoint). They have no statuses.
func AllocatedRoutes(pods func() []*v1.Pod) []Route {
	allocated := func() (out []*v1.Pod) {
		for _, pod := range pods() {
			if phase := pod.Status.Phase; phase != v1.PodSucceeded && phase != v1.PodFailed {
				out = append(out, &v1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
					ObjectMeta: pod.ObjectMeta, Spec: pod.Spec})
			}
		}
		return out
	}
	one := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, pod := range allocated() {
			uid := types.UID(cmp.Or(r.PathValue("uid"), string(pod.UID)))
			if pod.Namespace == r.PathValue("namespace") && pod.Name == r.PathValue("pod") &&
				pod.UID == uid {
				text, err := json.Marshal(pod)
				answer(w, text, err)
				return
			}
		}
		http.Error(w, "pod not found", http.StatusNotFound)
	})
	const all = "/allocatedPods"
	return []Route{
		{Method: http.MethodGet, Pattern: all, Slash: true, Handler: http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { answerList(w, allocated()) })},
		{Method: http.MethodGet, Pattern: all + "/{namespace}/{pod}", Handler: one},
		{Method: http.MethodGet, Pattern: all + "/{namespace}/{pod}/{uid}", Handler: one},
	}
}

// MetricsRoute has the metrics that are gathered, and those of the process and its libraries.
func MetricsRoute(from metrics.Gatherer) Route {
	return Route{Method: http.MethodGet, Pattern: "/metrics",
		Handler: metrics.HandlerFor(withLibraries{from}, metrics.HandlerOpts{})}
}

// SLIRoute has the results of the health checks as metrics. There is one count of them in a process.
func SLIRoute() Route {
	var out Installed
	slis.SLIMetrics{}.Install(&out)
	return out[0]
}

// JSONRoute answers with a value of the moment.
func JSONRoute(pattern string, value func() any) Route {
	return Route{Method: http.MethodGet, Pattern: pattern, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, value()) })}
}

// DisabledRoute answers every request below a pattern with why there is nothing.
func DisabledRoute(pattern, why string) Route {
	return Route{Pattern: pattern, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, why, http.StatusMethodNotAllowed)
		})}
}

// WriteJSON answers with a value as indented JSON.
func WriteJSON(w http.ResponseWriter, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	answer(w, append(text, '\n'), err)
}

func answer(w http.ResponseWriter, text []byte, err error) {
	if err != nil {
		http.Error(w, "encode answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // an error means that the client is gone
}

// Refusal is the answer, in plain text, to a request of which nothing comes.
type Refusal struct {
	Code int
	Text string
}

func (r *Refusal) Error() string { return r.Text }

// Answer sends it.
func (r *Refusal) Answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(r.Code)
	_, _ = w.Write([]byte(r.Text)) // an error means that the client is gone
}

// Installed collects the routes that a library installs.
type Installed []Route

// Handle takes one.
func (r *Installed) Handle(pattern string, handler http.Handler) {
	*r = append(*r, Route{Method: http.MethodGet, Pattern: pattern, Handler: handler})
}

func healthRoutes(checks []healthz.HealthChecker) []Route {
	var out Installed
	healthz.InstallHandler(&out, checks...)
	return out
}

// methods are the handlers of one pattern by method; any other method is answered with 405.
type methods map[string]http.Handler

func (m methods) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler := m[r.Method]
	if handler == nil {
		handler = m[""]
	}
	if handler == nil {
		w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(m)), ", "))
		http.Error(w, "405: Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	handler.ServeHTTP(w, r)
}

// join is one handler for all routes. Where there is none, it is a 404 whatever the method.
func join(all []Route, under *underWay) (http.Handler, error) {
	patterns := map[string]methods{}
	for _, r := range append(all, Route{Pattern: "/", Handler: http.NotFoundHandler()}) {
		if !r.Stream {
			r.Handler = newWhole(r.Handler, under)
		}
		r.Handler = used(r.Handler, r.Stream)
		if err := r.add(patterns, r.Pattern); err != nil {
			return nil, err
		}
		if !r.Slash {
			continue
		}
		if err := r.add(patterns, r.Pattern+"/{$}"); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	for pattern, m := range patterns {
		mux.Handle(pattern, m)
	}
	return mux, nil
}

// add has the route answer at a pattern.
func (r Route) add(patterns map[string]methods, pattern string) error {
	m := patterns[pattern]
	if m == nil {
		m = methods{}
		patterns[pattern] = m
	}
	if m[r.Method] != nil {
		return fmt.Errorf("serve %s %s: two handlers", r.Method, pattern)
	}
	m[r.Method] = r.Handler
	if r.Method == http.MethodGet {
		m[http.MethodHead] = r.Handler
	}
	return nil
}
