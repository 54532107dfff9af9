package objects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/cluster/requests"
)

// kind is a kind of object, as messages name it.
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

// maxObject is the greatest size of an object's data in bytes (MaxSecretSize of the API).
const maxObject = 1 << 20

// entry is an object that pods use. follower.mu guards all but its key.
type entry struct {
	key
	ready   chan struct{} // closed when known
	known   bool
	object  object // nil: there is none
	refused error  // why it cannot be used
	err     error  // why it is not known, or not up to date
	// asked holds the object's users, and whether they asked since it last changed.
	asked map[user]bool
	stop  context.CancelFunc // ends following it
}

func newEntry(k key) *entry {
	return &entry{key: k, ready: make(chan struct{}), asked: map[user]bool{}}
}

// set records the present object, nil for none, and tells users of a change.
func (f *follower) set(e *entry, now object) {
	for _, by := range f.take(e, now) {
		if by.waits {
			f.cfg.Arrived(by.pod)
		} else {
			f.cfg.Changed(by.pod)
		}
	}
}

// take returns the users to tell.
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
		close(e.ready)
	}
	for by, was := range e.asked {
		if was {
			tell = append(tell, by)
			e.asked[by] = false
		}
	}
	return tell
}

// missed records that the object could not be read or watched.
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
