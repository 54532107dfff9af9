package podworker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
)

// node is a node with machines for its pods; it implements Actuator and runs in a synctest bubble.
type node struct {
	*Workers
	stop func() // ends Run and waits for it

	mu       sync.Mutex // guards what follows
	machines map[types.UID]*machine
	programs map[string][]run
	stopping map[string]time.Duration
	log      []string
	reports  map[types.UID]Report
	rounds   int // of all pods
	gone     []types.UID
	observed int // in full
	recalled int
	begun    time.Time
	// before is called for each action without the lock; an error is the action's.
	before func(context.Context, Action) error
	// doing is called likewise, with the pod's UID.
	doing func(ctx context.Context, uid string, yield func()) error
	// during is called in the middle of each observation, without the lock.
	during func()
	// blind makes observations fail, lying makes actions do nothing.
	blind, lying bool
	// due is when volumes of a pod are due; nil: never.
	due func() time.Time
	// stale: nobody has read anything since the worker did.
	stale bool
	// probed is what the probes of the containers of all pods have found, by id.
	probed map[string]status.Probed
	// claimants are pods that hold claims.
	claimants map[types.UID]bool
	// tells: others are told of pods; published has those whose newest status they know.
	tells     bool
	published map[types.UID]bool
	// late: the runtime's lists have sandboxes as ready that were stopped.
	late bool
}

func newNode(t *testing.T) *node {
	n := &node{
		machines: map[types.UID]*machine{}, programs: map[string][]run{},
		stopping: map[string]time.Duration{}, reports: map[types.UID]Report{},
		begun: time.Now(),
	}
	n.Workers = New(Config{Actuator: n, Report: n.report, Gone: n.isGone, Known: Known{
		Probed: n.found, Holds: n.holds, IsPublished: n.isPublished,
		Due: func(*v1.Pod, time.Time) time.Time {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.due == nil {
				return time.Time{}
			}
			return n.due()
		}}})
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), klog.Logger{}))
	ended := make(chan error)
	go func() { ended <- n.Run(ctx) }()
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(n.stop)
	return n
}

func (n *node) isPublished(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.tells || n.published[uid]
}

func (n *node) holds(uid types.UID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.claimants[uid]
}

func (n *node) report(r Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports[r.Pod.UID] = r
	n.rounds++
}

func (n *node) found(types.UID) map[string]status.Probed {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.probed)
}

// finds has a probe find something, and wakes the pod.
func (n *node) finds(uid types.UID, container string, found status.Probed) {
	n.mu.Lock()
	n.probed = map[string]status.Probed{container: found}
	n.mu.Unlock()
	n.Wake(uid)
}

func (n *node) isGone(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone = append(n.gone, uid)
}

func (n *node) Recall(_ context.Context, uid types.UID, done Done) (cri.Pod, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, ok := n.machines[uid]
	switch done.Kind {
	case None, CreateSandbox, StartContainer, StopContainers, StopSandboxes, ReleaseClaims, CleanUp:
		if ok {
			m.now = time.Now()
			n.recalled++
			pod := m.observe()
			if n.stale && done.Kind == None {
				pod.ReadAt = time.Time{}
			}
			return pod, true
		}
	}
	return cri.Pod{}, false
}

func (n *node) Observe(_ context.Context, uid types.UID) (cri.Pod, error) {
	if n.during != nil {
		n.during()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observed++
	if n.blind {
		return cri.Pod{}, errors.New("blind")
	}
	m, ok := n.machines[uid]
	if !ok {
		return cri.Pod{UID: uid}, nil
	}
	m.now = time.Now()
	pod := m.observe()
	for i := range pod.Sandboxes {
		pod.Sandboxes[i].Ready = pod.Sandboxes[i].Ready || n.late
	}
	return pod, nil
}

func (n *node) Do(ctx context.Context, pod *v1.Pod, _ cri.Pod, a Action,
	yield func()) (cri.Made, error) {
	if n.before != nil {
		if err := n.before(ctx, a); err != nil {
			return cri.Made{}, err
		}
	}
	if n.doing != nil {
		if err := n.doing(ctx, string(pod.UID), yield); err != nil {
			return cri.Made{}, err
		}
	}
	if err := n.waitForStop(ctx, pod, a); err != nil {
		return cri.Made{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.log = append(n.log, fmt.Sprintf("%v %s: %s", time.Since(n.begun), pod.UID, a))
	if n.lying {
		return cri.Made{}, nil
	}
	m, ok := n.machines[pod.UID]
	if !ok {
		m = newMachine(pod)
		m.programs = n.programs
		n.machines[pod.UID] = m
	}
	m.now, m.pod = time.Now(), pod
	err := m.do(a)
	if next := m.tick(); !next.IsZero() {
		time.AfterFunc(time.Until(next), func() { n.Wake(pod.UID) })
	}
	var made cri.Made
	if a.Kind == CreateSandbox || a.Kind == StartContainer {
		made.Sandbox = m.seen.Sandboxes[0].ID
	}
	return made, err
}

// waitForStop takes the time that the containers need to obey a stop, or their grace.
func (n *node) waitForStop(ctx context.Context, pod *v1.Pod, a Action) error {
	if a.Kind != StopContainers {
		return nil
	}
	select {
	case <-time.After(n.takes(pod.UID, a)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// takes is how long a stop takes.
func (n *node) takes(uid types.UID, stop Action) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	m := *n.machines[uid]
	m.now, m.stopping = time.Now(), n.stopping
	m.seen = m.observe()
	begun := m.now
	m.stop(stop)
	return m.now.Sub(begun)
}

// at sleeps until the time since the beginning and lets the workers settle.
func (n *node) at(d time.Duration) {
	time.Sleep(time.Until(n.begun.Add(d)))
	synctest.Wait()
}

func (n *node) expect(t *testing.T, want ...string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if diff := cmp.Diff(want, n.log); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	for uid, m := range n.machines {
		if len(m.broken) > 0 {
			t.Errorf("pod %s: broken: %q", uid, m.broken)
		}
	}
	n.log = nil
}

func podOf(uid, line string) *v1.Pod {
	pod := makePod(line)
	pod.UID = types.UID(uid)
	return pod
}
