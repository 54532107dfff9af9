// Package checkpoints keeps what is assigned in line with what else says so: with what runs, and
// with the kubelet's files on disk. Rebuild reads both before the first pod is decided on; from
// then on the kubelet's files are written whenever they would say something else.
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

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/allocation/handover"
	"github.com/numalet/numalet/agent/allocation/store"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/resize"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/files"
)

// ReasonQuarantined is the event's reason for a file of assignments that could not be used and was
// moved aside.
const ReasonQuarantined = "StateFileQuarantined"

// Config is what is kept in line.
type Config struct {
	// Root has the files of the CPU and the memory manager, DeviceDir that of the device manager.
	Root, DeviceDir string
	BootID          string
	Store           *store.Store
	Running         func() []cri.Pod // what the runtime has
	// Admitted knows what pods were admitted with before this run of the agent, and Active are those
	// that were admitted and have not ended, as they were admitted.
	Admitted  resize.Admitted
	Active    func() []*v1.Pod
	Hardware  func() machine.Hardware
	Inventory func() devicemanager.Inventory
	// Lasting reports whether a kubelet that takes over the node finds the pod, under that UID.
	Lasting func(types.UID) bool
	// Tell records an event of the node.
	Tell func(eventType, reason, message string)
	// Changed has a value when what the files say may be another: a commit, pods that are admitted or
	// end, the hardware, what plugins offer.
	Changed <-chan struct{}
}

// Checkpoints are the files of one node.
type Checkpoints struct{ cfg Config }

// New reads and writes nothing.
func New(cfg Config) *Checkpoints { return &Checkpoints{cfg} }

// exportDelay is how long a commit waits for others before the kubelet's checkpoints, which are
// written whole, are written once for all of them.
const exportDelay = 50 * time.Millisecond

// exportRest is how many times as long as the last export took the next one waits at least: the
// list of a plugin with hundreds of thousands of devices takes most of a second to write.
const exportRest = 4

// Run writes the kubelet's files, at first and after each change, until ctx ends, and then for a
// kubelet: it counts what pods hold that it does not find as taken while it admits its first ones,
// and rejects those that find no room then for good. Rebuild has to have returned.
func (c *Checkpoints) Run(ctx context.Context) error {
	due := time.After(0) // nil: they say what is so
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

// Rebuild brings the state in line with what runs: pods that run hold what their containers say
// that they were created with, and what their sandboxes say for those that come later, also if the
// state file is gone, damaged, or of another time. For pods that a kubelet started, and of which
// our state has nothing, the kubelet's files say. It is committed before the first pod is decided
// on, and before the kubelet's files are written.
func (c *Checkpoints) Rebuild(ctx context.Context) error {
	log := klog.FromContext(ctx)
	changes, err := handover.Rebuild(
		c.cfg.Store.State(), c.cfg.Running(), c.cfg.BootID, c.kubelet(ctx))
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

// kubelet is the account of the files that a kubelet left on this node.
func (c *Checkpoints) kubelet(ctx context.Context) handover.Account {
	files, err := handover.ReadKubelet(c.cfg.Root, c.cfg.DeviceDir, time.Now())
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the kubelet recorded is not taken over in full")
		c.cfg.Tell(v1.EventTypeWarning, ReasonQuarantined, err.Error())
	}
	return files.On(c.node())
}

// node is what the node hands out now.
func (c *Checkpoints) node() handover.Node {
	h := c.cfg.Hardware()
	return handover.Node{
		Online: h.Machine.Online(), Nodes: h.Machine.NodeSet(), CPUs: h.CPUs, Memory: h.Memory,
		Inventory: c.cfg.Inventory(),
	}
}

// left is what is assigned to pods that a kubelet will find.
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
		handover.Export(c.cfg.Root, c.cfg.DeviceDir, assigned, c.node()), c.exportAdmitted())
}

func (c *Checkpoints) exportAdmitted() error {
	content, err := c.cfg.Admitted.Export(c.cfg.Active(), c.cfg.Running())
	if err == nil {
		err = files.Renew(filepath.Join(c.cfg.Root, resize.KubeletFile), content)
	}
	if err != nil {
		return fmt.Errorf("export %s: %w", resize.KubeletFile, err)
	}
	return nil
}
