package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/cpumanager/checkpoint"
)

// rebuild makes up for a state file that is not there: pods that run and are not in it hold what
// their containers say or, for those that a kubelet started, what the kubelet's files say. It is
// committed before the first pod is decided on, and before the kubelet's files are written.
func (a *Agent) rebuild(ctx context.Context) error {
	log := klog.FromContext(ctx)
	accounts := []allocation.Account{allocation.Annotated}
	if a.store.State().Version == 0 { // nothing was ever committed, or it was lost
		accounts = append(accounts, a.kubelet(ctx))
	}
	changes, err := allocation.Rebuild(
		a.store.State(), a.observer.All(), a.facts.bootID, accounts...)
	if err != nil {
		log.Error(err, "Some running pods are assigned anew")
	}
	for _, c := range changes {
		log.Info("Took over the assignment of a running pod",
			"pod", klog.KRef(c.Put.Namespace, c.Put.Name), "podUID", c.Put.UID, "cpus", c.Put.CPUs())
	}
	if len(changes) > 0 {
		if err := a.store.Commit(ctx, changes...); err != nil && ctx.Err() == nil {
			return fmt.Errorf("record the rebuilt assignments: %w", err)
		}
	}
	a.parts.chores.export()
	return nil
}

// kubelet is the account of the files that a kubelet left on this node.
func (a *Agent) kubelet(ctx context.Context) allocation.Account {
	files, err := allocation.ReadKubelet(a.cfg.RootDir, deviceDir(a.cfg.RootDir), time.Now())
	if err != nil {
		klog.FromContext(ctx).Error(err, "What the kubelet recorded is not taken over in full")
	}
	if a.facts.static == nil {
		files.CPUs = checkpoint.State{} // nobody has CPUs of its own under policy none
	}
	return files.On(a.facts.machine.Online())
}

// checkpoints writes the kubelet's files.
func (a *Agent) checkpoints() error {
	state := a.store.State()
	return errors.Join(
		allocation.ExportCPUs(a.cfg.RootDir, state, a.facts.static),
		allocation.Export(deviceDir(a.cfg.RootDir), state, a.plugins.Inventory()))
}
