package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/trace"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/prometheus/slis"
	"k8s.io/component-base/tracing"

	"github.com/numalet/numalet/cri"
)

// Route serves requests of one method. Packages export routes to what they know; the composition
// assigns them to listeners.
type Route struct {
	// Method is an HTTP method; a route for GET also answers HEAD. "": every method.
	Method string
	// Pattern is a pattern of http.ServeMux without a method.
	Pattern string
	Handler http.Handler
	// Slash allows a slash at the end of the path, as old clients send it.
	Slash bool
	// Stream: the answer is sent while it is made, and has no time limit. Other answers are made in
	// memory first, one for all concurrent requests of the same kind.
	Stream bool
}

// Get answers GET requests.
func Get(pattern string, answer http.HandlerFunc) Route {
	return Route{Method: http.MethodGet, Pattern: pattern, Handler: answer}
}

// PodsRoute lists pods as a v1.PodList.
func PodsRoute(pods func() []*v1.Pod) Route { return listRoute("/pods", pods) }

func listRoute(pattern string, pods func() []*v1.Pod) Route {
	r := Get(pattern, func(w http.ResponseWriter, _ *http.Request) {
		text, err := json.Marshal(podList(pods()))
		Answer(w, text, err)
	})
	r.Slash = true
	return r
}

func podList(pods []*v1.Pod) v1.PodList {
	list := v1.PodList{
		TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"},
		Items:    []v1.Pod{},
	}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	return list
}

// AllocatedRoutes list the pods that have not ended with the resources they were admitted with, and
// serve one of them by name, or by name and UID (KubeletAllocatedPodsEndpoint). They have no
// statuses.
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
	one := func(w http.ResponseWriter, r *http.Request) {
		for _, pod := range allocated() {
			uid := types.UID(cmp.Or(r.PathValue("uid"), string(pod.UID)))
			if pod.Namespace == r.PathValue("namespace") && pod.Name == r.PathValue("pod") &&
				pod.UID == uid {
				text, err := json.Marshal(pod)
				Answer(w, text, err)
				return
			}
		}
		http.Error(w, "pod not found", http.StatusNotFound)
	}
	const all = "/allocatedPods"
	return []Route{
		listRoute(all, allocated),
		Get(all+"/{namespace}/{pod}", one), Get(all+"/{namespace}/{pod}/{uid}", one),
	}
}

// MetricsRoute serves the gathered metrics, and those of the process and its libraries.
func MetricsRoute(from metrics.Gatherer) Route {
	return Route{Method: http.MethodGet, Pattern: "/metrics",
		Handler: metrics.HandlerFor(withLibraries{from}, metrics.HandlerOpts{})}
}

// SLIRoute serves the results of health checks as metrics. A process has one set of them.
func SLIRoute() Route {
	var out Installed
	slis.SLIMetrics{}.Install(&out)
	return out[0]
}

// JSONRoute serves the present value.
func JSONRoute(pattern string, value func() any) Route {
	return Get(pattern, func(w http.ResponseWriter, _ *http.Request) { WriteJSON(w, value()) })
}

// DisabledRoute answers every request that matches pattern with the reason why it is not served.
func DisabledRoute(pattern, why string) Route {
	return Route{Pattern: pattern, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, why, http.StatusMethodNotAllowed)
		})}
}

// WriteJSON answers with a value as indented JSON.
func WriteJSON(w http.ResponseWriter, value any) {
	text, err := json.MarshalIndent(value, "", "  ")
	Answer(w, append(text, '\n'), err)
}

// Answer answers with JSON, unless its making failed.
func Answer(w http.ResponseWriter, text []byte, err error) {
	if err != nil {
		http.Error(w, "encode answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(text) // an error means that the client has gone
}

// Refusal is a plain-text answer to a request that is not served.
type Refusal struct {
	Code int
	Text string
}

// Refuse returns a refusal.
func Refuse(code int, format string, args ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, args...)}
}

func (r *Refusal) Error() string { return r.Text }

// Answer sends the refusal.
func (r *Refusal) Answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(r.Code)
	_, _ = w.Write([]byte(r.Text)) // an error means that the client has gone
}

// Installed collects the routes that a library installs.
type Installed []Route

// Handle collects a handler.
func (r *Installed) Handle(pattern string, handler http.Handler) {
	*r = append(*r, Route{Method: http.MethodGet, Pattern: pattern, Handler: handler})
}

func healthRoutes(checks []healthz.HealthChecker) []Route {
	var out Installed
	healthz.InstallHandler(&out, checks...)
	return out
}

// methods maps methods to the handlers of one pattern; other methods get 405.
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

// join returns one handler for all routes. Paths without a route get 404, whatever the method.
func join(all []Route, under *underWay, spans trace.TracerProvider) (http.Handler, error) {
	patterns := map[string]methods{}
	for _, r := range append(all, Route{Pattern: "/", Handler: http.NotFoundHandler()}) {
		if !r.Stream {
			r.Handler = newWhole(r.Handler, under)
		}
		r.Handler = used(r.Handler, r.Stream)
		if spans != nil {
			r.Handler = tracing.WithTracing(r.Handler, spans, r.Pattern)
		}
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

// add registers the route under a pattern.
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

// RunningRoute lists the pods that run, as the runtime knows them, with their running containers.
func RunningRoute(all func() []cri.Pod) Route {
	return JSONRoute("/runningpods/{$}", func() any { return running(all()) })
}

func running(all []cri.Pod) v1.PodList {
	var out []*v1.Pod
	for _, found := range all {
		if !found.Running() {
			continue
		}
		pod := found.Reference()
		for _, c := range found.Containers {
			if c.State == cri.ContainerRunning {
				pod.Spec.Containers = append(pod.Spec.Containers,
					v1.Container{Name: c.Name, Image: c.From.Image})
			}
		}
		out = append(out, pod)
	}
	return podList(out)
}
