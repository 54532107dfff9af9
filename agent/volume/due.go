package volume

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// due is when the files of which pods are to be written again. It is lost with the agent: then they
// are compared once more, and written if they differ. The zero value is ready.
type due struct {
	mu   sync.Mutex
	pods map[types.UID]*upToDate
}

// upToDate is how far a pod's files are.
type upToDate struct {
	pod     *v1.Pod // as they were made for
	written bool    // they were, and nothing was heard since
	again   time.Time
}

// same reports whether files made for one version of a pod are those of the other.
func same(a, b *v1.Pod) bool {
	return a == b || a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations)
}

// begin says that a pod's files are about to be made: what changes from now on counts.
func (d *due) begin(pod *v1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pods == nil {
		d.pods = map[types.UID]*upToDate{}
	}
	d.pods[pod.UID] = &upToDate{pod: pod, written: true}
}

// begun reports whether this run of the agent has begun to make a pod's files.
func (d *due) begun(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pods[uid] != nil
}

// done says whether they were made, and when they shall be again.
func (d *due) done(uid types.UID, again time.Time, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.pods[uid]; ok {
		p.again, p.written = again, p.written && err == nil
	}
}

func (d *due) forget(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pods, uid)
}

// Changed says that something changed that files of the pod are made of.
func (d *due) Changed(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.pods[uid]; ok {
		p.written = false
	}
}

// Due is when an Update of the pod makes sense, which may be past; zero: not as long as nothing
// changes.
func (d *due) Due(pod *v1.Pod, now time.Time) time.Time {
	if upToDate, again := d.ask(pod); upToDate {
		return again
	}
	if !hasWritten(pod) {
		return time.Time{}
	}
	return now
}

func (d *due) ask(pod *v1.Pod) (upToDate bool, again time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, known := d.pods[pod.UID]
	if !known || !p.written || !same(p.pod, pod) {
		return false, time.Time{}
	}
	return true, p.again
}

// hasWritten reports whether the agent writes files into volumes of the pod.
func hasWritten(pod *v1.Pod) bool {
	all, err := usedVolumes(pod)
	return err == nil && slices.ContainsFunc(all, func(u used) bool { return u.plugin.written })
}
