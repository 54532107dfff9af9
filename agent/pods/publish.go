package pods

import (
	"context"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/topology/podspec"
)

// Publisher tells others of the statuses of the node's pods. None of its functions but Run and Synced blocks, and
// each but Status and Run may be nil.
type Publisher struct {
	Name   string
	Status func(podstatus.Change)
	// Heard is called once every source of pods was heard: what no source has can be forgotten.
	Heard func()
	// Delivered gets all pods that the API server has for the node, whenever one of them changed.
	Delivered func(all []*v1.Pod)
	// Synced waits until its receivers have the newest statuses, and reports whether they do.
	Synced func(context.Context) bool
	Run    func(context.Context) error
}

// publishers has all publishers of a node.
type publishers struct {
	all []Publisher
	// complete is set once every source of pods was heard.
	complete *atomic.Bool
}

func (p publishers) status(c podstatus.Change) {
	for _, one := range p.all {
		one.Status(c)
	}
}

func (p publishers) heard() {
	p.complete.Store(true)
	for _, one := range p.all {
		if one.Heard != nil {
			one.Heard()
		}
	}
}

// delivered returns the pods that are to run, of all that the API server has: all but the mirror pods.
func (p publishers) delivered(all []*v1.Pod) []*v1.Pod {
	for _, one := range p.all {
		if one.Delivered != nil {
			one.Delivered(all)
		}
	}
	return podspec.WithoutMirrors(all)
}

// Synced waits until all publishers have told the newest statuses, or ctx ends. It reports whether
// they have.
func (p publishers) Synced(ctx context.Context) bool {
	for _, one := range p.all {
		if one.Synced != nil && !one.Synced(ctx) {
			return false
		}
	}
	return true
}

func (p publishers) parts() (out []part.Part) {
	for _, one := range p.all {
		out = append(out, part.Of(one.Name, one.Run))
	}
	return out
}
