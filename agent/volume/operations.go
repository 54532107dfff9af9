package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/volume/csi"
)

// operations has what this run of the agent has begun to make for pods, to count the operations on
// volumes as the kubelet does. The zero value is ready.
type operations struct {
	mu   sync.Mutex
	pods map[types.UID]map[place]making
	// lost counts the volumes that earlier runs left and whose type or driver is not known.
	lost map[types.UID]int
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
	return out
}

// setUp makes a volume and counts that: what took the driver longer than ctx counts when it ends, and
// a volume that waits for its attacher does not count. A volume of the host is made once.
func (v *Volumes) setUp(ctx context.Context, t target) (again time.Time, err error) {
	before, began := v.operations.begin(t.pod.UID, t.used), time.Now()
	again, err = t.plugin.setUp(ctx, v, t)
	part, _ := errors.AsType[*csi.OperationError](err)
	switch {
	case err != nil && ctx.Err() != nil, part != nil && part.Operation == "WaitForAttach":
		return again, err
	case err == nil && before.made && t.plugin.path != nil:
		return again, nil
	}
	v.did(t.used, t.used.pick(csi.OperationMount, csi.OperationMap), began, err)
	if err != nil || before.made {
		return again, err
	}
	v.operations.made(t.pod.UID, t.place())
	if t.facts().driver == "" { // the others are attached, and say so themselves
		v.did(t.used, csi.OperationVerify, time.Now(), nil)
	}
	if !t.plugin.block {
		v.did(t.used, csi.OperationOverall, before.wanted, nil)
	}
	return again, nil
}

// did counts an operation on a volume that began then.
func (v *Volumes) did(u used, name string, began time.Time, err error) {
	v.cfg.Done(csi.Operation{Plugin: u.fullName(), Name: name, Migrated: u.migrated,
		Took: time.Since(began), Err: err})
}

// pick returns a name for volumes with a file system, or for block volumes.
func (u used) pick(files, block string) string {
	if u.plugin.block {
		return block
	}
	return files
}

// ended counts that the volumes of a pod were unmounted, but for those of drivers, which count
// themselves.
func (v takingBack) ended(pod types.UID, there []place, began time.Time) {
	known := v.operations.take(pod)
	count := func(plugin, name string, migrated bool) {
		v.cfg.Done(csi.Operation{Plugin: plugin, Name: name, Migrated: migrated, Took: time.Since(began)})
	}
	for _, m := range known {
		if m.of.facts().driver != "" || !m.made {
			continue
		}
		count(m.of.fullName(), m.of.pick(csi.OperationUnmount, csi.OperationUnmap), m.of.migrated)
		if m.of.plugin.block && !v.claims.elsewhere(pod, m.of.pv.Name) {
			count(m.of.fullName(), csi.OperationUnstageMap, m.of.migrated)
		}
	}
	for _, at := range there { // an earlier run of the agent, or a kubelet, made the others
		if m, is := known[at]; (!is || !m.made) && at.plugin != csiName {
			count(at.plugin, csi.OperationUnmount, false)
		}
	}
}

// stuck counts the volumes of a pod that could not be unmounted.
func (v takingBack) stuck(podDir string, there []place, began time.Time, err error) {
	for _, at := range there {
		if mounted, _ := v.isMounted(at.mountPoint(podDir)); mounted && at.plugin != csiName {
			v.cfg.Done(csi.Operation{Plugin: at.plugin, Name: csi.OperationUnmount,
				Took: time.Since(began), Err: err})
		}
	}
}

// lookAtRemains counts what earlier runs left.
func (v *Volumes) lookAtRemains() error {
	pods, err := os.ReadDir(filepath.Join(v.root, podsDir))
	if err != nil {
		return fmt.Errorf("look at what is left of pods: %w", err)
	}
	for _, pod := range pods {
		err = errors.Join(err, v.reconstruct(types.UID(pod.Name()), filepath.Join(v.root, podsDir, pod.Name())))
	}
	return err
}

// reconstruct counts the volumes that earlier runs left in a pod's directory.
func (v *Volumes) reconstruct(pod types.UID, podDir string) error {
	all, err := places(podDir)
	if err != nil {
		return err
	}
	blocks, err := filepath.Glob(filepath.Join(podDir, devicesDir, "*", "*"))
	if err != nil {
		return err
	}
	for _, path := range blocks {
		all = append(all, place{typeName(filepath.Base(filepath.Dir(path))), filepath.Base(path)})
	}
	for _, at := range all {
		err := v.isKnown(pod, at)
		v.cfg.Done(csi.Operation{Plugin: at.plugin, Name: csi.OperationReconstruct, Err: err})
		if err == nil {
			continue
		}
		if v.operations.lost == nil {
			v.operations.lost = map[types.UID]int{}
		}
		v.operations.lost[pod]++
	}
	return nil
}

// isKnown returns why the agent does not know what an earlier run has made.
func (v *Volumes) isKnown(pod types.UID, at place) error {
	if !slices.ContainsFunc(plugins(), func(p plugin) bool { return p.name == at.plugin }) {
		return fmt.Errorf("there are no volumes of type %s", at.plugin)
	}
	if at.plugin != csiName || v.cfg.CSI == nil {
		return nil
	}
	if slices.ContainsFunc(v.cfg.CSI.Uses(pod), func(u csi.Use) bool { return u.Name == at.name }) {
		return nil
	}
	return fmt.Errorf("volume %v has no record", at)
}

// cleaned counts that what was lost of a pod was removed, or could not be.
func (v takingBack) cleaned(pod types.UID, err error) {
	for range v.operations.clean(pod, err == nil) {
		v.cfg.Done(csi.Operation{Name: csi.OperationForceClean, Err: err})
	}
}

// clean returns how many volumes of a pod are lost, and forgets them if they are removed.
func (o *operations) clean(pod types.UID, removed bool) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.lost[pod]
	if removed {
		delete(o.lost, pod)
	}
	return n
}
