// Package checkpoints keeps the assignments in line with what runs and with the kubelet's files.
// Rebuild reads both before the first pod is admitted. Afterwards Run writes the kubelet's files
// whenever their content changes.
package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/podspec"
)

// Config has what Checkpoints needs.
type Config struct {
	// Root has the files of the CPU and the memory manager, DeviceDir that of the device manager.
	Root, DeviceDir string
	BootID          string
	Store           *store.Store
	Running         func() []cri.Pod // the runtime's pods
	// Admitted has the resources that pods were allocated before. Active returns the admitted pods that
	// have not ended, as they are allocated; Behind returns what runs of a pod that does not have all of this.
	Admitted  resize.Admitted
	Active    func() []*v1.Pod
	Behind    func(types.UID, podspec.Resources) (podspec.Resources, bool)
	Hardware  func() machine.Hardware
	Inventory func() devicemanager.Inventory
	// Lasting reports whether a kubelet that takes over the node finds the pod under this UID.
	Lasting func(types.UID) bool
	// Tell records an event of the node.
	Tell func(eventType, reason, message string)
	// Changed has a value when the files' content may have changed: by a commit, by a pod that is
	// admitted or ends, by the hardware, by what plugins offer.
	Changed <-chan struct{}
}

// Checkpoints owns the kubelet's files of one node.
type Checkpoints struct {
	cfg Config
	// actuated holds the content of the last actuated_pods_state written; Run owns it.
	actuated map[types.UID]podspec.Resources
}

// New reads and writes nothing.
func New(cfg Config) *Checkpoints { return &Checkpoints{cfg: cfg} }

// exportDelay is how long an export waits for further commits, as each export writes whole files.
const exportDelay = 200 * time.Millisecond

// exportRest bounds the share of time spent on exports: the next one waits at least exportRest
// times as long as the last one took. The list of hundreds of thousands of devices takes most of a
// second.
const exportRest = 4

// Run writes the kubelet's files at first and after each change. When ctx ends it writes them once
// more, without pods that a kubelet will not find: the kubelet would count what they hold as taken
// while it admits its first pods, and would reject pods for good. Call Run after Rebuild has
// returned.
func (c *Checkpoints) Run(ctx context.Context) error {
	due := time.After(0) // nil: the files are up to date
	var took time.Duration
	export := func(state allocation.State) {
		began := time.Now()
		if err := c.export(state); err != nil {
			klog.FromContext(ctx).Info("The kubelet's checkpoints were not written", "err", err)
		}
		due, took = nil, time.Since(began)
	}
	for {
		select {
		case <-ctx.Done():
			export(c.left())
			return nil
		case <-due:
			export(c.cfg.Store.State())
			continue
		case <-c.cfg.Changed:
		}
		if due == nil {
			due = time.After(max(exportDelay, exportRest*took))
		}
	}
}

// Rebuild brings the state in line with what runs, even if the state file is lost, damaged or old.
// Running pods hold what the annotations of their containers say, and their sandboxes for
// containers that are not created yet; the kubelet's files, which follow resizes, say how many CPUs and how
// much memory. For pods that a kubelet started and that our state does not know, these files count. Rebuild commits this; call it before the first pod is admitted.
func (c *Checkpoints) Rebuild(ctx context.Context) error {
	log, kubelet := klog.FromContext(ctx), c.kubelet(ctx)
	changes, err := handover.Rebuild(c.cfg.Store.State(), c.cfg.Running(), c.cfg.BootID, kubelet, kubelet)
	if err != nil {
		log.Error(err, "Some running pods are assigned anew")
	}
	for _, change := range changes {
		if change.Drop != "" {
			log.Info("Dropped the record of a pod that does not run", "podUID", change.Drop)
			continue
		}
		log.Info("Took over the assignment of a running pod",
			"pod", klog.KObj(change.Put.Reference()), "podUID", change.Put.UID,
			"cpus", change.Put.CPUs())
	}
	if len(changes) > 0 {
		if err := c.cfg.Store.Commit(ctx, changes...); err != nil && ctx.Err() == nil {
			return fmt.Errorf("record the rebuilt assignments: %w", err)
		}
	}
	return nil
}

// kubelet returns the account of the files that a kubelet left on this node.
func (c *Checkpoints) kubelet(ctx context.Context) handover.Account {
	files, err := handover.ReadKubelet(c.cfg.Root, c.cfg.DeviceDir, time.Now())
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the kubelet recorded is not taken over in full")
		c.cfg.Tell(v1.EventTypeWarning, store.ReasonQuarantined, err.Error())
	}
	return files.On(c.node())
}

// node returns what the node can hand out now.
func (c *Checkpoints) node() handover.Node {
	h := c.cfg.Hardware()
	return handover.Node{
		Online: h.Machine.Online(), Nodes: h.Machine.NodeSet(), CPUs: h.CPUs, Memory: h.Memory,
		Inventory: c.cfg.Inventory(),
	}
}

// left returns the assignments of pods that a kubelet will find.
func (c *Checkpoints) left() allocation.State {
	assigned := c.cfg.Store.State()
	assigned.Pods = maps.Clone(assigned.Pods)
	maps.DeleteFunc(assigned.Pods, func(uid types.UID, _ allocation.Pod) bool {
		return !c.cfg.Lasting(uid)
	})
	return assigned
}

// export writes the kubelet's files.
func (c *Checkpoints) export(assigned allocation.State) error {
	return errors.Join(
		handover.Export(c.cfg.Root, c.cfg.DeviceDir, assigned, c.node()), c.exportResources())
}

// exportResources writes what pods are allocated, and what runs of them.
func (c *Checkpoints) exportResources() error {
	allocated := c.cfg.Admitted.Allocated(c.cfg.Active(), c.cfg.Running())
	c.actuated = c.cfg.Admitted.Actuated(allocated, c.actuated, c.cfg.Behind)
	return errors.Join(c.write(resize.KubeletFile, allocated), c.write(resize.ActuatedFile, c.actuated))
}

func (c *Checkpoints) write(name string, pods map[types.UID]podspec.Resources) error {
	content, err := resize.Encode(pods)
	if err == nil {
		err = files.Renew(filepath.Join(c.cfg.Root, name), content)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", name, err)
	}
	return nil
}
