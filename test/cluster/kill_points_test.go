package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/faults"
	"github.com/numalet/numalet/test/harness"
)

// killPoint is a moment at which an agent is killed that ends a pod: at a call of the runtime, before it has
// an effect or before the agent hears of it, or at a write of the pod's status, which the API server does
// not get then.
type killPoint struct {
	method string
	after  bool
	write  int // the first is 1; 0: at a call
}

func (p killPoint) String() string {
	when := map[bool]string{false: "before", true: "after"}[p.after]
	if p.write > 0 {
		return fmt.Sprintf("before-write-%d", p.write)
	}
	return when + "-" + strings.ToLower(p.method)
}

// killing is a node whose agent ends pods.
type killing struct {
	t         *testing.T
	runtime   *crisim.Server
	proxy     *faults.Proxy
	client    kubernetes.Interface
	namespace string
}

// points lists all points of what do has the agent do to a pod.
func (e killing) points(pod string, do func()) (all []killPoint) {
	e.t.Helper()
	before := len(e.runtime.Journal(0))
	var writes atomic.Int32
	e.proxy.Instead(func(_ http.ResponseWriter, r *http.Request) bool {
		if e.writes(r, pod) {
			writes.Add(1)
		}
		return false
	})
	do()
	e.proxy.Instead(nil)
	for _, call := range e.runtime.Journal(0)[before:] {
		changes := slices.ContainsFunc([]string{"Stop", "Remove", "Update"}, func(verb string) bool {
			return strings.HasPrefix(call.Method, verb)
		})
		at := killPoint{method: call.Method}
		if changes && call.Subject.Pod == pod && !slices.Contains(all, at) {
			all = append(all, at, killPoint{method: call.Method, after: true})
		}
	}
	for i := range writes.Load() {
		all = append(all, killPoint{write: int(i) + 1})
	}
	return all
}

// writes reports whether a request writes the status of a pod.
func (e killing) writes(r *http.Request, pod string) bool {
	return r.Method == http.MethodPatch &&
		r.URL.Path == "/api/v1/namespaces/"+e.namespace+"/pods/"+pod+"/status"
}

// at has the agent hang at a point of what happens to a pod, and returns how to wait for that.
func (e killing) at(p killPoint, pod string) (reached func() error) {
	e.t.Helper()
	if p.write == 0 {
		before := len(e.runtime.Journal(0))
		if err := e.runtime.SetFault(crisim.Fault{Method: p.method, Pod: pod, Hang: true, After: p.after}); err != nil {
			e.t.Fatal(err)
		}
		return func() error {
			if slices.ContainsFunc(e.runtime.Journal(0)[before:], func(c crisim.Call) bool {
				return c.Method == p.method && c.Subject.Pod == pod
			}) {
				return nil
			}
			return errors.New("it was not called")
		}
	}
	var writes atomic.Int32
	e.proxy.Instead(func(_ http.ResponseWriter, r *http.Request) bool {
		if !e.writes(r, pod) || int(writes.Add(1)) < p.write {
			return false
		}
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	})
	return func() error {
		got := int(writes.Load())
		known, err := e.client.CoreV1().Pods(e.namespace).Get(context.Background(), pod, metav1.GetOptions{})
		if err == nil && known.Status.Phase != v1.PodFailed && got < p.write { // another run may need fewer
			err = fmt.Errorf("%d writes", got)
		}
		return err
	}
}

// over ends what at has set.
func (e killing) over() {
	e.runtime.ClearFaults()
	e.proxy.Instead(nil)
}

// started returns how often a pod's container was started.
func (e killing) started(pod string) (count int) {
	for _, call := range e.runtime.Journal(0) {
		if call.Method == "StartContainer" && call.Subject.Pod == pod {
			count++
		}
	}
	return count
}

// TestKilledEverywhere kills the agent at each call and each write of an eviction, and of a shutdown, and
// starts it again: the pod ends, in an eviction once, and the API server learns it. It runs if
// NUMALET_FAULT_ROUNDS is set.
func TestKilledEverywhere(t *testing.T) {
	if os.Getenv(roundsEnv) == "" {
		t.Skip("left out: " + roundsEnv + " has it run")
	}
	t.Run("eviction", func(t *testing.T) {
		s := newFaulty(t, harness.New(t), nil, "")
		e := killing{t, s.node.Runtime, s.proxy, s.c.Client, s.c.Namespace}
		s.startEvicted("undisturbed")
		all := e.points("undisturbed", func() {
			s.short("900Ti")
			await(t, s.c, s.c.Namespace, "undisturbed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
		})
		s.short("1Mi")
		s.evictedOnce("undisturbed")
		for _, p := range all {
			pod := p.String()
			t.Run(pod, func(t *testing.T) {
				s, e := s.as(t), killing{t, e.runtime, e.proxy, e.client, e.namespace}
				s.startEvicted(pod)
				reached := e.at(p, pod)
				s.short("900Ti")
				harness.Eventually(t, "the point", reached)
				s.node.Kill()
				e.over()
				s.short("1Mi")
				s.evictedOnce(pod)
			})
		}
	})
	t.Run("shutdown", func(t *testing.T) {
		var all []killPoint
		t.Run("undisturbed", func(t *testing.T) {
			s := newGoingDown(t, "numalet")
			s.start("low", "")
			all = killing{t, s.Runtime, s.proxy, s.Client, s.Namespace}.points("low", func() {
				s.bus.Prepare(true)
				s.inhibited(0)
			})
		})
		for _, p := range all {
			t.Run(p.String(), func(t *testing.T) { killedGoingDown(newGoingDown(t, "numalet"), p) })
		}
	})
}

// killedGoingDown kills the agent at a point of the end of low, while the machine goes down, and starts it
// again before the machine is off.
func killedGoingDown(s goingDown, p killPoint) {
	e := killing{s.t, s.Runtime, s.proxy, s.Client, s.Namespace}
	s.start("low", "")
	s.start("high", "priorityClassName: "+s.class()+",")
	reached := e.at(p, "low")
	s.bus.Prepare(true)
	harness.Eventually(s.t, "the point", reached)
	s.Kill()
	e.over()
	s.Start()
	for _, name := range []string{"low", "high"} {
		s.ended(name)
		if c, _ := s.Runtime.State().Container(name, "main"); c.Running() {
			s.t.Errorf("the container of %s runs", name)
		}
	}
	for _, name := range []string{"low", "high"} {
		if got := e.started(name); got != 1 {
			s.t.Errorf("the container of %s was started %d times", name, got)
		}
	}
	if got := s.bus.Locks(); got != 0 {
		s.t.Errorf("%d inhibitors are held", got)
	}
	s.boot()
	for _, name := range []string{"low", "high"} {
		s.ended(name)
	}
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}
