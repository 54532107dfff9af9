package podsource

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/numalet/numalet/internal/podtest"
)

// api is an API server that has only pods, and misbehaves on request.
type api struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	version int
	pods    map[string]*v1.Pod
	log     []logged
	oldest  int           // older versions have expired
	changed chan struct{} // closed and replaced when log or cut changes
	cut     int           // watches started before it end
	refuse  []int         // status codes of the next requests
	lists   int
	watches int
	bodies  []string // bodies of the answers to the next lists
}

type logged struct {
	version int
	event   metav1.WatchEvent
}

func newAPI(t *testing.T) *api {
	a := &api{version: 10, pods: map[string]*v1.Pod{}, changed: make(chan struct{})}
	a.Server = httptest.NewServer(http.HandlerFunc(a.answer))
	t.Cleanup(func() { a.CloseClientConnections(); a.Close() })
	return a
}

func (a *api) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{Host: a.URL, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// do changes the server under its lock, and wakes watches.
func (a *api) do(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.changed)
	a.changed = make(chan struct{})
}

// put creates or changes a pod; change may be nil.
func (a *api) put(name string, change func(*v1.Pod)) {
	a.do(func() {
		a.version++
		kind, p := watch.Modified, a.pods[name]
		if p == nil {
			kind = watch.Added
			p = podNamed(name)
		}
		p = p.DeepCopy()
		if change != nil {
			change(p)
		}
		p.ResourceVersion = strconv.Itoa(a.version)
		a.pods[name] = p
		a.record(kind, p)
	})
}

func (a *api) remove(name string) {
	a.do(func() {
		a.version++
		p := a.pods[name].DeepCopy()
		p.ResourceVersion = strconv.Itoa(a.version)
		delete(a.pods, name)
		a.record(watch.Deleted, p)
	})
}

func (a *api) record(kind watch.EventType, o runtime.Object) {
	a.log = append(a.log, logged{a.version, metav1.WatchEvent{
		Type: string(kind), Object: runtime.RawExtension{Object: o},
	}})
}

func podNamed(name string) *v1.Pod {
	return podtest.New(name, podtest.UID("uid-"+name), podtest.Phase(v1.PodPending), podtest.Containers("c"),
		func(p *v1.Pod) {
			p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
			p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
			p.Spec.NodeName, p.Spec.Containers[0].Image = "n", "i:1"
		})
}

func (a *api) answer(w http.ResponseWriter, r *http.Request) {
	if got := r.URL.Query().Get("fieldSelector"); got != "spec.nodeName=n" {
		status(w, http.StatusBadRequest, "field selector "+got)
		return
	}
	a.mu.Lock()
	code, watching := 0, r.URL.Query().Get("watch") != ""
	if len(a.refuse) > 0 {
		code, a.refuse = a.refuse[0], a.refuse[1:]
	}
	a.mu.Unlock()
	switch {
	case code != 0:
		w.Header().Set("Retry-After", "1")
		status(w, code, "refused")
	case r.URL.Query().Get("sendInitialEvents") != "":
		status(w, http.StatusUnprocessableEntity, "lists are not streamed")
	case watching:
		a.watch(w, r)
	default:
		a.list(w)
	}
}

func status(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reason := map[int]metav1.StatusReason{
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	}[code]
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func (a *api) list(w http.ResponseWriter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lists++
	if len(a.bodies) > 0 {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(a.bodies[0]))
		a.bodies = a.bodies[1:]
		return
	}
	out := v1.PodList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.version)},
	}
	for _, name := range slices.Sorted(maps.Keys(a.pods)) {
		out.Items = append(out.Items, *a.pods[name])
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// watch sends the events after a version until it is cut.
func (a *api) watch(w http.ResponseWriter, r *http.Request) {
	from, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		status(w, http.StatusBadRequest, "resource version")
		return
	}
	a.mu.Lock()
	a.watches++
	me, old := a.watches, from < a.oldest
	a.mu.Unlock()
	if old {
		status(w, http.StatusGone, fmt.Sprintf("too old: %d", from))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.(http.Flusher).Flush()
	out := json.NewEncoder(w)
	for {
		a.mu.Lock()
		log, changed, ended := slices.Clone(a.log), a.changed, me <= a.cut
		a.mu.Unlock()
		if ended {
			return
		}
		for _, l := range log {
			if l.version > from {
				_ = out.Encode(l.event)
				from = l.version
			}
		}
		w.(http.Flusher).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
