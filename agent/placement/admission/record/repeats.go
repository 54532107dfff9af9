package record

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/await"
)

// Pods of one controller are rejected with growing time between them, and those of all controllers
// not more often than perMinute.
const (
	firstHold, longestHold = 10 * time.Second, 5 * time.Minute
	perMinute              = 6
	maxOwners              = 1000 // that are remembered
)

// Repeats counts the rejections of pods whose controllers replace them. A controller makes another pod
// at once, which would be rejected as well: a full node would make hundreds of failed pods. So the
// next one is held back for a while, in which room may appear.
type Repeats struct {
	owners map[types.UID]repeated
	// last are the times of the last rejections, the oldest first, perMinute of them at most.
	last []time.Time
}

type repeated struct {
	count int       // in a row
	next  time.Time // when another pod may be rejected
}

// OwnerOf returns the controller that replaces the pod when it fails; "": none.
func OwnerOf(pod *v1.Pod) types.UID {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind != "Node" {
		return owner.UID
	}
	return ""
}

// Until returns when a pod of the owner may be rejected; not after now: at once.
func (r *Repeats) Until(owner types.UID, now time.Time) time.Time {
	if owner == "" {
		return now
	}
	next := r.owners[owner].next
	if len(r.last) == perMinute {
		if room := r.last[0].Add(time.Minute); room.After(next) {
			next = room
		}
	}
	return next
}

// Rejected counts the rejection of a pod of the owner.
func (r *Repeats) Rejected(owner types.UID, now time.Time) {
	if owner == "" {
		return
	}
	if r.last = append(r.last, now); len(r.last) > perMinute {
		r.last = r.last[1:]
	}
	o := r.owners[owner]
	if now.Sub(o.next) > longestHold {
		o.count = 0 // the last ones are long ago
	}
	o.next = now.Add(await.Pauses{First: firstHold, Last: longestHold}.After(o.count))
	o.count++
	if r.owners == nil {
		r.owners = map[types.UID]repeated{}
	}
	r.owners[owner] = o
	r.forget()
}

// forget makes room for other owners: it drops the one whose pods may be rejected soonest.
func (r *Repeats) forget() {
	if len(r.owners) <= maxOwners {
		return
	}
	var soonest types.UID
	for owner, o := range r.owners {
		if soonest == "" || o.next.Before(r.owners[soonest].next) {
			soonest = owner
		}
	}
	delete(r.owners, soonest)
}

// Admitted forgets the rejections of an owner: one of its pods has found room.
func (r *Repeats) Admitted(owner types.UID) { delete(r.owners, owner) }
