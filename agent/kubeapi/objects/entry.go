package objects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/kubeapi/requests"
)

// kind is a kind of objects, as messages about them name it.
type kind string

const (
	configMaps kind = "configmap"
	secrets    kind = "secret"
)

type key struct {
	kind            kind
	namespace, name string
}

// object is a *v1.ConfigMap or a *v1.Secret.
type object interface {
	runtime.Object
	metav1.Object
}

// maxObject is how much data an object has at most, in bytes (MaxSecretSize of the API).
const maxObject = 1 << 20

// entry is an object that pods use. What is not in its key is guarded by follower.mu.
type entry struct {
	key
	settled chan struct{} // closed when known
	known   bool
	object  object // nil: there is none
	refused error  // why it cannot be used
	err     error  // why it is not known, or not up to date
	// told has those that use it, and whether they asked since it was another one.
	told map[user]bool
	stop context.CancelFunc // ends following it
}

func newEntry(k key) *entry {
	return &entry{key: k, settled: make(chan struct{}), told: map[user]bool{}}
}

// settle takes in what the object is now, nil for none.
func (f *follower) settle(e *entry, now object) {
	for _, by := range f.take(e, now) {
		if by.waits {
			f.cfg.Arrived(by.pod)
		} else {
			f.cfg.Changed(by.pod)
		}
	}
}

// take returns those to tell.
func (f *follower) take(e *entry, now object) (tell []user) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.err = nil
	if e.known && sameVersion(e.object, now) {
		return nil
	}
	e.object, e.refused = now, nil
	if now != nil {
		now.SetManagedFields(nil)
		if size := sizeOf(now); size > maxObject {
			e.object, e.refused = nil, fmt.Errorf("%s %q has %d bytes of data; at most %d are "+
				"taken", e.kind, e.name, size, maxObject)
		}
		if immutable(now) {
			e.stop()
		}
	}
	if !e.known {
		e.known = true
		close(e.settled)
	}
	for by, was := range e.told {
		if was {
			tell = append(tell, by)
			e.told[by] = false
		}
	}
	return tell
}

// missed takes in that the object could not be read or watched.
func (f *follower) missed(e *entry, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e.err = requests.Short(err)
}

func sameVersion(a, b object) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.GetUID() == b.GetUID() && a.GetResourceVersion() == b.GetResourceVersion()
}

func sizeOf(o object) (size int) {
	switch o := o.(type) {
	case *v1.ConfigMap:
		for _, text := range o.Data {
			size += len(text)
		}
		for _, bytes := range o.BinaryData {
			size += len(bytes)
		}
	case *v1.Secret:
		for _, bytes := range o.Data {
			size += len(bytes)
		}
	}
	return size
}

func immutable(o object) bool {
	switch o := o.(type) {
	case *v1.ConfigMap:
		return ptr.Deref(o.Immutable, false)
	case *v1.Secret:
		return ptr.Deref(o.Immutable, false)
	default:
		return false
	}
}
