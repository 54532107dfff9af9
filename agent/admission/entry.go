package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/topology/podspec"
)

// entry is one pod that admission knows.
type entry struct {
	demand
	// runs: its sandbox is alive and its record, if any, is of this boot. It keeps what it has and
	// is admitted, whatever it lacks.
	runs bool
	// ended: it came to its end by itself, and others know that.
	ended bool
	state state

	has         reservation
	after       *entry // it stands in line behind it
	preferences preferences
	tries       tries
	told        told
}

// reservation is what admission lets a pod have of the node.
type reservation struct {
	kind reservationKind
	pod  allocation.Pod
}

type reservationKind int

const (
	// assigned: the pod holds it, or is to get it; without containers, nothing.
	assigned reservationKind = iota
	// tentative is a guess: what it would get without the preference that is being asked for, or that
	// it stands in line for.
	tentative
	// claim is what nobody gets who comes later. Some of it terminating pods may hold still. What
	// is only counted is claimed too.
	claim
)

// preferences are what plugins prefer for the pod.
type preferences struct {
	advice allocation.Advice
	// silent are the resources whose plugins failed to answer: they are not asked again.
	silent sets.Set[string]
	// ignored says whose preferences are not followed.
	ignored []string
}

// answered adds what came of asking a plugin. One that did not answer is not asked again.
func (p preferences) answered(key allocation.AskKey, advice []string, err error) preferences {
	p = p.with(key, advice)
	if err != nil {
		p.ignored = append(slices.Clip(p.ignored), fmt.Sprintf("%s of container %s: %v",
			key.Resource, key.Container, err))
	}
	if mayPass(err) {
		p = p.without(key.Resource)
	}
	return p
}

// with adds what a plugin prefers; nil: it was asked in vain.
func (p preferences) with(key allocation.AskKey, advice []string) preferences {
	p.advice = maps.Clone(p.advice)
	if p.advice == nil {
		p.advice = allocation.Advice{}
	}
	p.advice[key] = advice
	return p
}

// without adds that a plugin did not answer.
func (p preferences) without(resource string) preferences {
	p.silent = p.silent.Union(sets.New(resource))
	return p
}

// tries is what was begun for the pod, and failed, and when it is tried again.
type tries struct {
	since time.Time // when the pod came
	due   time.Time // when the time that the state has is over; zero: it has none but the deadline
	// call is the number of the last goroutine; an answer of another one is late. cancel ends it.
	call   int
	cancel context.CancelFunc
	// retries counts the failures of plugins and of the store, reread is what was looked at again for
	// it.
	retries int
	reread  Stale
	// refusal is said if the pod may wait no longer for what failed last.
	refusal *allocation.Rejection
	// unsound: it keeps CPUs that the machine would not give it when that was decided, so that this
	// is no sign of a machine that has changed since.
	unsound bool
	// madeWay: other pods have made way for it.
	madeWay bool
	// held is until when it is held back; zero: it was not.
	held time.Time
}

// demand is a pod and what it requests of the node.
type demand struct {
	pod      *v1.Pod
	requests v1.ResourceList
	shares   bool // some of its containers share CPUs
	ports    []podspec.HostPort
	rank     podspec.Rank
	// least is how many exclusive CPUs ("cpu") and devices it holds at once at least.
	least map[string]int
}

// demandOf is what the pod requests of a node with this CPU policy, nil for none.
func demandOf(pod *v1.Pod, node *cpumanager.Static) demand {
	d := demand{
		pod: pod, requests: allocation.Requests(node, pod), shares: cpumanager.Shares(pod),
		least: podspec.AllDevices(pod), ports: podspec.HostPorts(pod),
		rank: podspec.RankOf(pod),
	}
	d.least[string(v1.ResourceCPU)] = cpumanager.PodExclusive(pod)
	return d
}

// wants reports whether the pod requests any of these resources.
func (d demand) wants(resources sets.Set[string]) bool {
	for name := range d.least {
		if resources.Has(name) {
			return true
		}
	}
	return false
}

// goesNow reports whether to the kubelet the pod holds nothing any more.
func (e *entry) goesNow() bool {
	return e.state.goesNow() || e.ended && e.state == terminating
}

// claims reports whether the pod waits with a claim, or did until now.
func (e *entry) claims() bool { return e.has.kind == claim }

// counts reports whether the pod's requests count against the node. Those of a pod without a place,
// for which a plugin is asked, do not.
func (e *entry) counts() bool {
	switch e.state {
	case admitted, terminating, releasing, unreleased:
		return true
	}
	return e.claims() || e.isReserved()
}

func (e *entry) isReserved() bool { return len(e.has.pod.Containers) > 0 }

// isShort reports whether the pod runs, and a container of it that comes later could not be
// created.
func (e *entry) isShort() bool {
	return e.runs && e.state == admitted && !e.has.pod.IsEmpty() && e.has.pod.Incomplete(e.pod)
}

// unanswered lists the resources whose plugins have not said yet what the pod's containers get.
func (e *entry) unanswered() []string {
	resources := sets.New[string]()
	for _, c := range e.has.pod.Containers {
		for _, d := range c.Devices {
			if d.Answer == nil {
				resources.Insert(d.Resource)
			}
		}
	}
	return sets.List(resources)
}
