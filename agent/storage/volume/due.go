package volume

import (
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// due knows when the files of which pods must be written again. The agent loses it when it ends;
// the next run compares all files once, and writes those that differ.
type due struct {
	// renews reports whether a volume of the pod has to be made again although nothing changed.
	renews func(pod *v1.Pod) bool

	mu   sync.Mutex // guards pods
	pods map[types.UID]*upToDate
}

// upToDate is the state of a pod's files.
type upToDate struct {
	pod     *v1.Pod // that the files were made for
	written bool    // the files were written, and nothing has changed since
	again   time.Time
}

// same reports whether two versions of a pod get the same files.
func same(a, b *v1.Pod) bool {
	return a == b || a.Generation == b.Generation && maps.Equal(a.Labels, b.Labels) &&
		maps.Equal(a.Annotations, b.Annotations)
}

// begin records that a pod's files are about to be made: from now on a change counts.
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

// done records whether the files were made, and when to make them again.
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

// changed records that something changed that files of the pod are made of.
func (d *due) changed(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p, ok := d.pods[uid]; ok {
		p.written = false
	}
}

// at returns when to call Update for the pod, maybe a time in the past; zero: not before something
// changes.
func (d *due) at(pod *v1.Pod, now time.Time) time.Time {
	if upToDate, again := d.ask(pod); upToDate {
		return again
	}
	if !hasWritten(pod) && !d.renews(pod) {
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

// isRenewed reports whether the volume's driver publishes it again and again.
func (c Config) isRenewed(u used) bool {
	return u.plugin.driver != nil && u.plugin.driver.renewed(c, u)
}

// renews reports whether a volume of the pod is published again and again, or is to be recalled.
func (n *node) renews(pod *v1.Pod) bool {
	all, err := n.pvcs.usedNow(pod)
	return err == nil && slices.ContainsFunc(all, n.cfg.isRenewed) || n.misses(pod)
}
