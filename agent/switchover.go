package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/topology/memory/state"
)

// reasonQuarantined is the event's reason for a file of assignments that could not be used and was
// moved aside.
const reasonQuarantined = "StateFileQuarantined"

// openStore opens the state file. One that cannot be used is moved aside: rebuild makes up for it.
func (a *Agent) openStore(ctx context.Context) (err error) {
	a.store, err = allocation.Open(a.cfg.RootDir)
	if a.store == nil {
		return err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Assignments are rebuilt from the containers that run")
		a.nodeEvent(v1.EventTypeWarning, reasonQuarantined,
			err.Error()+"; assignments are rebuilt from the containers that run")
	}
	return nil
}

// nodeEvent tells what happened to the node. Without an API server the log is where events go.
func (a *Agent) nodeEvent(eventType, reason, message string) {
	klog.Background().V(1).Info("Event", "node", a.facts.name, "type", eventType,
		"reason", reason, "message", message)
}

// rebuild brings the state in line with what runs: pods that run hold what their containers say
// that they were created with, and what their sandboxes say for those that come later, also if the
// state file is gone, damaged, or of another time. For pods that a kubelet started, and of which
// our state has nothing, the kubelet's files say. It is committed before the first pod is decided
// on, and before the kubelet's files are written.
func (a *Agent) rebuild(ctx context.Context) error {
	log := klog.FromContext(ctx)
	var accounts []allocation.Account
	if a.store.State().Version == 0 { // nothing was ever committed, or it was lost
		accounts = append(accounts, a.kubelet(ctx))
	}
	changes, err := allocation.Rebuild(
		a.store.State(), a.observer.All(), a.facts.bootID, accounts...)
	if err != nil {
		log.Error(err, "Some running pods are assigned anew")
	}
	for _, c := range changes {
		if c.Drop != "" {
			log.Info("Dropped the record of a pod that does not run", "podUID", c.Drop)
			continue
		}
		log.Info("Took over the assignment of a running pod",
			"pod", klog.KRef(c.Put.Namespace, c.Put.Name), "podUID", c.Put.UID,
			"cpus", c.Put.CPUs())
	}
	if len(changes) > 0 {
		if err := a.store.Commit(ctx, changes...); err != nil && ctx.Err() == nil {
			return fmt.Errorf("record the rebuilt assignments: %w", err)
		}
	}
	a.sayOvercommitted(ctx, a.facts.hardware.Get())
	a.parts.chores.export()
	return nil
}

// kubelet is the account of the files that a kubelet left on this node.
func (a *Agent) kubelet(ctx context.Context) allocation.Account {
	files, err := allocation.ReadKubelet(a.cfg.RootDir, deviceDir(a.cfg.RootDir), time.Now())
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the kubelet recorded is not taken over in full")
		a.nodeEvent(v1.EventTypeWarning, reasonQuarantined, err.Error())
	}
	hardware := a.facts.hardware.Get()
	if hardware.CPUs == nil {
		files.CPUs = checkpoint.State{} // nobody has CPUs of its own under policy none
	}
	if hardware.Memory == nil {
		files.Memory = state.Contents{} // likewise
	}
	return files.On(hardware.Machine.Online(), hardware.Machine.NodeSet())
}

// checkpoints writes the kubelet's files.
func (a *Agent) checkpoints() error {
	assigned, hardware := a.store.State(), a.facts.hardware.Get()
	return errors.Join(
		allocation.ExportCPUs(a.cfg.RootDir, assigned, hardware.CPUs),
		allocation.ExportMemory(a.cfg.RootDir, assigned, hardware.Memory),
		allocation.Export(deviceDir(a.cfg.RootDir), assigned, a.plugins.Inventory()))
}
