package kubeapi

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// Patience is how long an answer outweighs deliveries that contradict it: the watch may be behind.
// A delivery that is right all the same, of a server restored from a backup, is found out
// afterwards.
const Patience = 10 * time.Second

// Object is a pointer to an object of the API server; nil: there is none.
type Object interface {
	comparable
	metav1.Object
}

// Copy holds what the API server has under a UID or a name, as far as is known from the deliveries
// of a watch and the answers to requests. They come in any order, and the newest version counts. A
// delivery that contradicts it does not count and raises a doubt, which its owner resolves: by
// asking the API server, or by believing the watch. The zero Copy has nothing. A Copy reads no
// clock and has no lock.
type Copy[T Object] struct {
	last      T // the newest known version
	delivered T
	// gone: the API server no longer has last, nor anything newer as far as is known.
	gone bool
	// ahead: an answer said so, and no delivery since.
	ahead bool
	doubt time.Time // the time from which there is a doubt; zero: never
}

// Get returns what the API server has; nil: nothing.
func (c *Copy[T]) Get() T {
	var none T
	if c.gone {
		return none
	}
	return c.last
}

// Last returns the newest known version, even if it is gone; nil: there was none.
func (c *Copy[T]) Last() T { return c.last }

// Delivered returns the last delivery; nil: nothing.
func (c *Copy[T]) Delivered() T { return c.delivered }

// Deliver records what the watch says is there; nil: nothing. It reports whether that is another
// version than before, and counts.
func (c *Copy[T]) Deliver(object T, now time.Time) (counts bool) {
	var none T
	before := c.Get()
	switch c.delivered = object; {
	case object == none && !(c.ahead && before != none):
		c.gone, c.ahead, c.doubt = true, false, time.Time{}
		return before != none
	case object != none && !c.contradicts(object):
		c.Take(object)
		c.ahead = false
		return before == none || before.GetUID() != object.GetUID() || !sameVersion(before, object)
	case c.doubt.IsZero():
		c.doubt = now.Add(Patience)
	}
	return false
}

// contradicts reports whether a delivered version is older than the known one, or gone by an
// answer. Versions that cannot be compared count as newer.
func (c *Copy[T]) contradicts(object T) bool {
	var none T
	if c.last == none {
		return false
	}
	if object.GetResourceVersion() == c.last.GetResourceVersion() {
		return c.ahead && (c.gone || object.GetUID() != c.last.GetUID())
	}
	return Older(object.GetResourceVersion(), c.last.GetResourceVersion())
}

// sameVersion reports whether both versions are known to be the same.
func sameVersion(a, b metav1.Object) bool {
	order, err := resourceversion.CompareResourceVersion(
		a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order == 0
}

// Take records an answer: the API server has this version now.
func (c *Copy[T]) Take(object T) {
	c.last, c.gone, c.ahead, c.doubt = object, false, true, time.Time{}
}

// Lose records an answer: the API server has nothing.
func (c *Copy[T]) Lose() { c.gone, c.ahead, c.doubt = true, true, time.Time{} }

// Believe resolves a doubt: the last delivery counts.
func (c *Copy[T]) Believe() {
	var none T
	if c.gone = c.delivered == none; !c.gone {
		c.last = c.delivered
	}
	c.ahead, c.doubt = false, time.Time{}
}

// Doubt raises a doubt at a time.
func (c *Copy[T]) Doubt(at time.Time) { c.doubt = at }

// Doubted reports whether there is a doubt now, and the time at which there will be one; zero:
// never.
func (c *Copy[T]) Doubted(now time.Time) (is bool, at time.Time) {
	return !c.doubt.IsZero() && !now.Before(c.doubt), c.doubt
}
