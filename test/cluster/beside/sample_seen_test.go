package beside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

var sampleDifferences = []difference{
	{where: "(agent restarts|pod deleted while the agent is down|both restart): node", sometimes: true,
		why: "the capacity is remembered, and what is allocatable with the flag that is 0 here"},
	{where: "registered: node", sometimes: true,
		why: "whether a status is written between the registration and the first list"},
}

// aDevice matches the one of two devices that an agent has chosen.
var aDevice = regexp.MustCompile(`Dev-[12]`)

// sampleSaid matches lines of the plugin's log about calls.
var sampleSaid = regexp.MustCompile(`\] "?(GetInfo|ListAndWatch|Allocate|PreStartContainer|` +
	`GetPreferredAllocation|Device Plugin registered with the Kubelet|` +
	`Client unable to register to kubelet|Registration failed)"?(.*)`)

// calls returns the calls in the plugin's log by now, with the number of devices, and how often
// each came.
func (s *sample) calls() map[string]int {
	out := map[string]int{}
	for _, line := range sampleSaid.FindAllStringSubmatch(s.said(), -1) {
		call := line[1]
		if n := strings.Count(line[2], "Dev-"); n > 0 {
			call = fmt.Sprintf("%s of %d", call, n)
		}
		out[call]++
	}
	return out
}

// samplePatience fits the plugin, which looks for a new kubelet.sock every 10 s.
const samplePatience = 3 * time.Minute

func (s *sample) eventually(what string, check func() error) {
	s.Helper()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-s.ended:
			s.Fatalf("the plugin ended while the test waited until %s; it said\n%s", what, s.said())
		default:
		}
		if time.Since(began) > max(samplePatience, harness.Patience) {
			s.Fatalf("waited in vain until %s: %v; the plugin said\n%s", what, err, s.said())
		}
	}
}

func (s *sample) pods() typedv1.PodInterface {
	return s.cluster.Client.CoreV1().Pods(s.cluster.Namespace)
}

// awaitDevices waits until a new status of the node has these numbers of devices.
func (s *sample) awaitDevices(capacity, allocatable int) {
	s.Helper()
	want, began := fmt.Sprintf("%d/%d", capacity, allocatable), time.Now()
	s.eventually("the node has "+want+" devices", func() error {
		n, err := s.cluster.Client.CoreV1().Nodes().Get(context.Background(), s.node.Name,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := devicesOf(n); got != want {
			return errors.New("it has " + got)
		}
		for _, c := range n.Status.Conditions {
			if c.Type == v1.NodeReady && !c.LastHeartbeatTime.After(began) {
				return errors.New("its status is of before")
			}
		}
		return nil
	})
}

func (s *sample) await(name string, phase v1.PodPhase) {
	s.Helper()
	s.eventually("pod "+name+" is "+string(phase), func() error {
		p, err := s.pods().Get(context.Background(), name, metav1.GetOptions{})
		if err == nil && p.Status.Phase != phase {
			err = fmt.Errorf("it is %s: %s: %s", p.Status.Phase, p.Status.Reason, p.Status.Message)
		}
		return err
	})
}

func (s *sample) delete(name string) {
	s.Helper()
	if err := s.pods().Delete(s.Context(), name, metav1.DeleteOptions{}); err != nil {
		s.Fatal(err)
	}
}

func (s *sample) awaitGone(name string) {
	s.Helper()
	s.eventually("pod "+name+" is gone", func() error {
		_, err := s.pods().Get(context.Background(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there (%v)", err)
	})
}

func devicesOf(n *v1.Node) string {
	of := func(list v1.ResourceList) string {
		if q, there := list[sampleResource]; there {
			return q.String()
		}
		return "-"
	}
	return of(n.Status.Capacity) + "/" + of(n.Status.Allocatable)
}

// history is what a watcher sees of the node and its pods, each change once.
type history struct {
	steps map[string]string

	mu    sync.Mutex
	calls map[string]int
	seen  map[string][]string // of this step
	last  map[string]string
	at    map[string]uint64 // the newest version that was seen, by kind
}

// follow watches until the test ends.
func follow(t *testing.T, c rig.Cluster, node string) *history {
	t.Helper()
	h := &history{steps: map[string]string{}, seen: map[string][]string{}, last: map[string]string{},
		at: map[string]uint64{}}
	nodes, err := c.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", node).String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := c.Client.CoreV1().Pods(c.Namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for _, w := range []watch.Interface{nodes, pods} {
		all.Go(func() {
			for e := range w.ResultChan() {
				h.saw(e)
			}
		})
	}
	t.Cleanup(func() {
		nodes.Stop()
		pods.Stop()
		all.Wait()
	})
	return h
}

func (h *history) saw(e watch.Event) {
	switch o := e.Object.(type) {
	case *v1.Node:
		h.note("node", devicesOf(o))
		h.reached("node", o)
	case *v1.Pod:
		is := string(o.Status.Phase)
		if o.Status.Reason != "" {
			is += " " + o.Status.Reason + ": " + aDevice.ReplaceAllString(o.Status.Message, "Dev-x")
		}
		if e.Type == watch.Deleted {
			is = "gone"
		}
		h.note("pod "+o.Name, is)
		h.reached("pods", o)
	}
}

func (h *history) reached(kind string, o metav1.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at[kind] = max(h.at[kind], versionOf(o.GetResourceVersion()))
}

// versionOf returns a resource version of the API server as a number; they are in order.
func versionOf(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // it is always a number
	return n
}

// caughtUp waits until the watchers have seen the present state: reads of the API server may be
// newer than the watches.
func (s *sample) caughtUp() {
	s.Helper()
	node, err := s.cluster.Client.CoreV1().Nodes().Get(s.Context(), s.node.Name, metav1.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	pods, err := s.pods().List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	newest, there := uint64(0), map[string]bool{}
	for i := range pods.Items {
		newest = max(newest, versionOf(pods.Items[i].ResourceVersion))
		there["pod "+pods.Items[i].Name] = true
	}
	s.eventually("the watchers have seen all", func() error {
		h := s.seen
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.at["node"] < versionOf(node.ResourceVersion) || h.at["pods"] < newest {
			return fmt.Errorf("they have seen %v", h.at)
		}
		for what, is := range h.last {
			if what != "node" && is != "gone" && !there[what] {
				return fmt.Errorf("%s is %s", what, is)
			}
		}
		return nil
	})
}

func (h *history) note(what, is string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last[what] == is {
		return
	}
	h.last[what] = is
	h.seen[what] = append(h.seen[what], is)
}

// end ends a step, with the calls to the plugin until now.
func (h *history) end(step string, calls map[string]int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for what, is := range h.seen {
		h.steps[step+": "+what] = strings.Join(is, ", ")
	}
	for _, call := range slices.Sorted(maps.Keys(calls)) {
		if n := calls[call] - h.calls[call]; n > 0 {
			h.steps[step+": calls"] += fmt.Sprintf("%s x%d ", call, n)
		}
	}
	h.seen, h.calls = map[string][]string{}, calls
}
