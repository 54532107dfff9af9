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
	"github.com/numalet/numalet/internal/route"
)

// PodsRoute lists pods as a v1.PodList.
func PodsRoute(pods func() []*v1.Pod) route.Route { return listRoute("/pods", pods) }

func listRoute(pattern string, pods func() []*v1.Pod) route.Route {
	r := route.Get(pattern, func(w http.ResponseWriter, _ *http.Request) {
		text, err := json.Marshal(podList(pods()))
		route.Answer(w, text, err)
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
func AllocatedRoutes(pods func() []*v1.Pod) []route.Route {
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
				route.Answer(w, text, err)
				return
			}
		}
		http.Error(w, "pod not found", http.StatusNotFound)
	}
	const all = "/allocatedPods"
	return []route.Route{
		listRoute(all, allocated),
		route.Get(all+"/{namespace}/{pod}", one), route.Get(all+"/{namespace}/{pod}/{uid}", one),
	}
}

// MetricsRoute serves the gathered metrics, and those of the process and its libraries.
func MetricsRoute(from metrics.Gatherer) route.Route {
	return route.Route{Method: http.MethodGet, Pattern: "/metrics",
		Handler: metrics.HandlerFor(withLibraries{from}, metrics.HandlerOpts{})}
}

// SLIRoute serves the results of health checks as metrics. A process has one set of them.
func SLIRoute() route.Route {
	var out route.Installed
	slis.SLIMetrics{}.Install(&out)
	return out[0]
}

func healthRoutes(checks []healthz.HealthChecker) []route.Route {
	var out route.Installed
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
func join(all []route.Route, under *underWay, spans trace.TracerProvider) (http.Handler, error) {
	patterns := map[string]methods{}
	for _, r := range append(all, route.Route{Pattern: "/", Handler: http.NotFoundHandler()}) {
		if !r.Stream {
			r.Handler = newWhole(r.Handler, under)
		}
		r.Handler = used(r.Handler, r.Stream)
		if spans != nil {
			r.Handler = tracing.WithTracing(r.Handler, spans, r.Pattern)
		}
		if err := add(r, patterns, r.Pattern); err != nil {
			return nil, err
		}
		if !r.Slash {
			continue
		}
		if err := add(r, patterns, r.Pattern+"/{$}"); err != nil {
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
func add(r route.Route, patterns map[string]methods, pattern string) error {
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
func RunningRoute(all func() []cri.Pod) route.Route {
	return route.JSON("/runningpods/{$}", func() any { return running(all()) })
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
