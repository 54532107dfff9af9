package admission

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/podspec"
)

type phase int

const (
	queued    phase = iota
	waiting         // until something changes, retryAt or the deadline
	busy            // a goroutine asks plugins or commits
	admitted        // holds its assignment
	releasing       // a goroutine drops it from the store
	rejected        // remembered until it is released, so that it is not decided twice
)

// entry is one pod that admission knows.
type entry struct {
	demand
	phase   phase
	adopt   bool // its sandbox is alive
	leaving bool // it terminates; what it holds will be free
	since   time.Time

	counsel
	grip
	backoff
	words
	again  *v1.Pod // submitted anew before it was released
	gone   bool    // released while busy
	cancel context.CancelFunc
}

// counsel is what plugins prefer for the pod.
type counsel struct {
	advice allocation.Advice
	// silent are the resources whose plugins failed to answer: they are not asked again.
	silent sets.Set[string]
	// ignored says whose preferences are not followed.
	ignored []string
}

// grip is what the pod has of the node.
type grip struct {
	reserved allocation.Pod
	// tentative: reserved is what it would get without the advice that is being asked for.
	tentative bool
	// claimed: it waits, and reserved is its claim: what nobody who comes later gets. Some of it
	// terminating pods may hold still. What is only counted is claimed too.
	claimed bool
	// brief: it waits for releases that are being recorded, whatever its deadline: to the kubelet
	// what those pods held is free.
	brief bool
}

// backoff is when something is tried again.
type backoff struct {
	retryAt time.Time // zero: not at a set time
	retries int
	reread  bool // the machine was looked at again for it
	// refusal is said if the pod may wait no longer for what failed last.
	refusal *allocation.Rejection
}

// demand is a pod and what it requests of the node.
type demand struct {
	pod      *v1.Pod
	requests v1.ResourceList
	shares   bool // some of its containers share CPUs
	// least is how many exclusive CPUs ("cpu") and devices it holds at once at least.
	least map[string]int
}

func demandOf(pod *v1.Pod) demand {
	d := demand{
		pod: pod, requests: podspec.Requests(pod), shares: cpumanager.Shares(pod),
		least: map[string]int{},
	}
	for _, name := range append(podspec.DeviceResources(pod), string(v1.ResourceCPU)) {
		d.least[name] = allocation.Amount(pod, name)
	}
	return d
}

// holds reports whether the pod's requests count against the node. Those of a pod without a place,
// for which a plugin is asked, do not.
func (e *entry) holds() bool {
	return e.phase == admitted || e.phase == releasing || e.claimed || e.isReserved()
}

// goesNow reports whether the pod is gone, and that what it held is free is being recorded.
func (e *entry) goesNow() bool { return e.gone || e.phase == releasing && e.retryAt.IsZero() }

func (e *entry) isReserved() bool { return len(e.reserved.Containers) > 0 }

// advise records what a plugin prefers; nil: it was asked in vain.
func (e *entry) advise(key allocation.AskKey, advice []string) {
	if e.advice == nil {
		e.advice = allocation.Advice{}
	}
	e.advice[key] = advice
}
