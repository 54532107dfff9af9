package event

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

func pod(name string) *v1.Pod { return podtest.New("shop/" + name) }

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %s", what)
		}
	}
}

// What comes again is counted; the pod, the node and who says it are told.
func TestRemembered(t *testing.T) {
	r := New(t.Context(), "node1")
	for range 3 {
		r.Pod(pod("a"), v1.EventTypeWarning, "BackOff", "again")
	}
	r.OnNode(v1.EventTypeNormal, "Starting", "here")
	eventually(t, "both remembered", func() bool {
		all := r.List()
		return len(all) == 2 && all[0].Count+all[1].Count == 4
	})
	for _, e := range r.List() {
		of := e.InvolvedObject
		switch {
		case e.Source != v1.EventSource{Component: "kubelet", Host: "node1"}:
			t.Errorf("source %v", e.Source)
		case of.Kind == "Pod":
			if of.Namespace != "shop" || of.Name != "a" || of.UID != "a" || e.Reason != "BackOff" ||
				e.Message != "again" || e.Type != v1.EventTypeWarning || e.Count != 3 {
				t.Errorf("%+v", e)
			}
		case of.Kind != "Node" || of.Name != "node1" || e.Namespace != "default" || e.Count != 1:
			t.Errorf("%+v", e)
		}
	}
}

// A message that ends with a space keeps it, and is no longer than the API takes.
func TestSpaceAtTheEnd(t *testing.T) {
	r := New(t.Context(), "node1")
	r.Pod(pod("a"), v1.EventTypeWarning, "Evicted", "It was low on\nmemory. ")
	r.Pod(pod("b"), v1.EventTypeWarning, "Evicted", strings.Repeat("x", 3*maxMessage)+" ")
	eventually(t, "both remembered", func() bool { return len(r.List()) == 2 })
	for _, e := range r.List() {
		if e.InvolvedObject.Name == "a" && e.Message != "It was low on memory. " || len(e.Message) > maxMessage {
			t.Errorf("%d bytes: %q", len(e.Message), e.Message)
		}
	}
}

// The node's events have its UID once that is known; until then kubectl finds them by the name.
func TestUIDOfTheNode(t *testing.T) {
	r := New(t.Context(), "node1")
	var node *v1.Node
	about := func(reason string) (uid types.UID) {
		r.OnNode(v1.EventTypeNormal, reason, "here")
		eventually(t, "remembered", func() bool {
			for _, e := range r.List() {
				if e.Reason == reason {
					uid = e.InvolvedObject.UID
				}
			}
			return uid != ""
		})
		return uid
	}
	if got := about("Before"); got != "node1" {
		t.Errorf("an event of before is about %q", got)
	}
	r.Follow(func() *v1.Node { return node })
	if got := about("Unknown"); got != "node1" {
		t.Errorf("before the node is known an event is about %q", got)
	}
	node = &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "u-1"}}
	if got := about("Known"); got != "u-1" {
		t.Errorf("an event is about %q", got)
	}
}

// An event of a container says where in the pod that stands.
func TestOfContainer(t *testing.T) {
	r, p := New(t.Context(), "node1"), pod("a")
	podtest.Containers("first!")(p)
	r.Container(podspec.Ref{Pod: p, Container: "first"}, v1.EventTypeNormal, "Started", "x")
	eventually(t, "remembered", func() bool { return len(r.List()) == 1 })
	want := v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "a",
		UID: "a", FieldPath: "spec.initContainers{first}"}
	if got := r.List()[0]; got.InvolvedObject != want || got.Namespace != "shop" {
		t.Errorf("%+v", got)
	}
}

// There is a bound: what was longest ago is forgotten, and told anew when it comes again.
func TestMemoryIsBounded(t *testing.T) {
	m, began := newMemory(), time.Now()
	at := func(i int) *v1.Event {
		return &v1.Event{
			ObjectMeta:    metav1.ObjectMeta{Name: fmt.Sprint("e", i)},
			LastTimestamp: metav1.NewTime(began.Add(time.Duration(i) * time.Second)), Count: 1,
		}
	}
	for i := range 5 * remembered {
		if _, err := m.Create(at(i)); err != nil {
			t.Fatal(err)
		}
	}
	all := m.list()
	if len(all) > remembered || all[len(all)-1].Name != fmt.Sprint("e", 5*remembered-1) {
		t.Errorf("%d events, the last %s", len(all), all[len(all)-1].Name)
	}
	if _, err := m.Patch(at(0), []byte(`{"count":2}`)); err == nil {
		t.Error("an event that was forgotten was changed")
	}
	if e, err := m.Patch(at(5*remembered-1), []byte(`{"count":2}`)); err != nil || e.Count != 2 {
		t.Errorf("%v, %v", e, err)
	}
}

// hangs is an API server that never answers.
type hangs struct{ asked chan *v1.Event }

func (h hangs) Create(e *v1.Event) (*v1.Event, error) {
	h.asked <- e
	select {}
}
func (h hangs) Update(e *v1.Event) (*v1.Event, error)          { return h.Create(e) }
func (h hangs) Patch(e *v1.Event, _ []byte) (*v1.Event, error) { return h.Create(e) }

// takes is one that does.
type takes struct{ hangs }

func (t takes) Create(e *v1.Event) (*v1.Event, error) {
	t.asked <- e
	return e, nil
}

// A sink has the events that memory has, about the same objects; one that hangs holds up neither
// those who record nor memory nor another sink.
func TestSend(t *testing.T) {
	r := New(t.Context(), "node1")
	stuck, api := hangs{make(chan *v1.Event, 10)}, takes{hangs{make(chan *v1.Event, 10)}}
	r.Send(stuck)
	r.Send(api)
	for _, name := range []string{"a", "b"} {
		r.Pod(pod(name), v1.EventTypeWarning, "Failed", "no")
	}
	r.OnNode(v1.EventTypeNormal, "Starting", "here")
	<-stuck.asked
	for _, want := range []types.UID{"a", "b", "node1"} {
		if got := <-api.asked; got.InvolvedObject.UID != want {
			t.Errorf("an event of %s, want %s", got.InvolvedObject.UID, want)
		}
	}
	eventually(t, "remembered", func() bool { return len(r.List()) == 3 })
}
