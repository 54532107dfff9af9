package volume

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

// operations has what this run of the agent has begun to make for pods, and counts the operations on
// volumes as the kubelet does, but for those of drivers, which count themselves.
type operations struct {
	*node
	mu      sync.Mutex // guards the fields below
	pods    map[types.UID]map[place]making
	refused sets.Set[types.UID] // pods that the node gave up
}

// making is a volume that was wanted for a pod.
type making struct {
	wanted time.Time
	made   bool
	of     used
}

// begin notes that a volume is to be made, and returns what was known of it.
func (o *operations) begin(pod types.UID, u used) making {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pods == nil {
		o.pods = map[types.UID]map[place]making{}
	}
	if o.pods[pod] == nil {
		o.pods[pod] = map[place]making{}
	}
	m, known := o.pods[pod][u.place()]
	if !known {
		m = making{wanted: time.Now(), of: u}
		o.pods[pod][u.place()] = m
	}
	return m
}

func (o *operations) made(pod types.UID, at place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m, known := o.pods[pod][at]; known {
		m.made = true
		o.pods[pod][at] = m
	}
}

// take returns the volumes of a pod and forgets them.
func (o *operations) take(pod types.UID) map[place]making {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.pods[pod]
	delete(o.pods, pod)
	o.refused.Delete(pod)
	return out
}

// refuse notes that the node gives up a pod, and reports whether that is news.
func (o *operations) refuse(pod types.UID) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refused.Has(pod) {
		return false
	}
	if o.refused == nil {
		o.refused = sets.Set[types.UID]{}
	}
	o.refused.Insert(pod)
	return true
}

// setUp makes a volume and counts that: what took the driver longer than ctx counts when it ends, and
// a volume that waits for its attacher does not count. A volume of the host is made once.
func (o *operations) setUp(ctx context.Context, m *makers, t target) (again time.Time, err error) {
	before, began := o.begin(t.pod.UID, t.used), time.Now()
	again, err = t.plugin.setUp(ctx, m, t)
	switch {
	case err != nil && ctx.Err() != nil, operation.IsUnattached(err):
		return again, err
	case err == nil && before.made && t.plugin.path != nil:
		return again, nil
	}
	o.cfg.did(t.used, t.used.pick(operation.Mount, operation.Map), began, err)
	if err != nil || before.made {
		return again, err
	}
	o.made(t.pod.UID, t.place())
	if t.plugin.driver == nil { // the others are attached, and say so themselves
		o.cfg.did(t.used, operation.Verify, time.Now(), nil)
	}
	if !t.plugin.block {
		o.cfg.did(t.used, operation.Overall, before.wanted, nil)
	}
	return again, nil
}

// did counts an operation on a volume that began then.
func (c Config) did(u used, name string, began time.Time, err error) {
	c.Done(operation.Done{Plugin: u.fullName(), Name: name, Migrated: u.migrated,
		Took: time.Since(began), Err: err})
}

// pick returns a name for volumes with a file system, or for block volumes.
func (u used) pick(files, block string) string {
	if u.plugin.block {
		return block
	}
	return files
}

// ended counts that the volumes of a pod were unmounted.
func (o *operations) ended(pod types.UID, there []place, began time.Time) {
	known := o.take(pod)
	count := func(plugin, name string, migrated bool) {
		o.cfg.Done(operation.Done{Plugin: plugin, Name: name, Migrated: migrated, Took: time.Since(began)})
	}
	for _, m := range known {
		if m.of.plugin.driver != nil || !m.made {
			continue
		}
		count(m.of.fullName(), m.of.pick(operation.Unmount, operation.Unmap), m.of.migrated)
		if m.of.plugin.block && !o.pvcs.elsewhere(pod, m.of.pv.Name) {
			count(m.of.fullName(), operation.UnstageMap, m.of.migrated)
		}
	}
	for _, at := range there { // an earlier run of the agent, or a kubelet, made the others
		if m, is := known[at]; (!is || !m.made) && typeNamed(at.plugin).driver == nil {
			count(at.plugin, operation.Unmount, false)
		}
	}
}

// stuck counts the volumes of a pod that could not be unmounted.
func (o *operations) stuck(podDir string, there []place, began time.Time, err error) {
	for _, at := range there {
		if mounted, _ := o.isMounted(at.mountPoint(podDir)); mounted && typeNamed(at.plugin).driver == nil {
			o.cfg.Done(operation.Done{Plugin: at.plugin, Name: operation.Unmount,
				Took: time.Since(began), Err: err})
		}
	}
}
