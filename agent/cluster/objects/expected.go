package objects

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Expected follows the config maps and secrets without which pods that wait for admission cannot
// start. Only Look waits for the API server.
type Expected struct {
	follower *follower

	mu sync.Mutex
	// looked holds the pods for which objects that are not watched were read.
	looked sets.Set[types.UID]
}

// Lack is an object without which a pod cannot start, as a volume or a container needs it.
type Lack struct {
	Volume, Container string // one of them
	Err               error  // in the kubelet's words
}

// Unknown reports whether the API server has not answered yet: the object may exist.
func (l *Lack) Unknown() bool {
	_, is := errors.AsType[unknown](l.Err)
	return is
}

// keys yields the keys of all that is required, some more than once.
func (r required) keys() iter.Seq[key] {
	return func(yield func(key) bool) {
		for _, part := range slices.Concat(r.volumes, r.first) {
			for _, one := range part.all {
				if !yield(one.key) {
					return
				}
			}
		}
	}
}

func waiting(pod *v1.Pod) user { return user{pod.UID, true} }

// Expect follows what the pod cannot start without, until Dismiss. It does not block. Lack reports
// what is too much to follow.
func (x *Expected) Expect(pod *v1.Pod) {
	for k := range requiredBy(pod).keys() {
		if _, err := x.follower.use(waiting(pod), k); err != nil {
			return
		}
	}
}

// Dismiss ends Expect: the pod no longer waits.
func (x *Expected) Dismiss(pod types.UID) {
	x.follower.release(user{pod, true})
	x.mu.Lock()
	defer x.mu.Unlock()
	x.looked.Delete(pod)
}

// Look waits until all is known, or will not be soon. It returns before Dismiss is called.
func (x *Expected) Look(ctx context.Context, pod *v1.Pod) {
	for k := range requiredBy(pod).keys() {
		_, _ = x.follower.get(ctx, waiting(pod), k) // Lack reports the error
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.looked.Insert(pod.UID)
}

// upToDate reports whether the known objects count for the pod: objects that are not watched are
// read for each pod.
func (x *Expected) upToDate(pod *v1.Pod) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.follower.cfg.Strategy == kubeletconfig.WatchChangeDetectionStrategy ||
		x.looked.Has(pod.UID)
}

// Lack returns an object that the pod needs and that does not exist, or else one that may not exist;
// nil: the pod lacks nothing. It does not block. When the answer changes, Config.Arrived gets the pod.
func (x *Expected) Lack(pod *v1.Pod) *Lack {
	r, upToDate := requiredBy(pod), x.upToDate(pod)
	var perhaps *Lack
	for _, v := range r.volumes {
		err := x.check(waiting(pod), upToDate, v.all)
		if err == nil {
			continue
		}
		lack := &Lack{Volume: v.name, Err: err}
		if !lack.Unknown() {
			return lack
		}
		perhaps = lack
	}
	var first *Lack
	for _, c := range r.first {
		err := x.check(waiting(pod), upToDate, c.all)
		if err == nil {
			return perhaps // this one can start when the volumes are there
		}
		lack := &Lack{Container: c.name, Err: err}
		if first == nil || lack.Unknown() {
			first = lack
		}
	}
	if first != nil && (perhaps == nil || !first.Unknown()) {
		return first
	}
	return perhaps
}

// check returns the first error that is not just "unknown", or else the first error.
func (x *Expected) check(by user, upToDate bool, all []reference) (first error) {
	for _, one := range all {
		err := x.checkOne(by, upToDate, one)
		if err == nil {
			continue
		}
		if _, is := errors.AsType[unknown](err); !is {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func (x *Expected) checkOne(by user, upToDate bool, one reference) error {
	e, err := x.follower.use(by, one.key)
	if err != nil {
		return err
	}
	if !upToDate {
		return unknown{fmt.Errorf("%s %q was not read yet", e.kind, e.name)}
	}
	found, err := x.follower.answer(e, by)
	if err != nil {
		return err
	}
	return one.check(found)
}
