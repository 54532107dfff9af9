// Package node is the machine and the agent's settings: who the node is, its host and runtime, and what it
// does when it runs short or goes down.
package node

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubemetrics "k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Identity names a node, and has the settings and the hardware by which it decides.
type Identity struct {
	Settings *config.Config
	Name     string
	BootID   string
	Booted   time.Time // the kernel
	Rules    topology.Rules
	Hardware *machine.Current
}

// Node has what every floor stands on, that of a hollow node too.
type Node struct {
	Identity
	Registry kubemetrics.KubeRegistry // nil: metrics are not registered
	Events   Events
}

// Events records what happened. No method blocks.
type Events interface {
	OnNode(eventType, reason, message string)
	Pod(pod *v1.Pod, eventType, reason, message string)
	// Annotated is Pod with annotations.
	Annotated(pod *v1.Pod, annotations map[string]string, eventType, reason, message string)
	Container(of podspec.Ref, eventType, reason, message string)
	About(object runtime.Object, eventType, reason, message string)
}

// Identify settles who the node is, and reads its machine.
func Identify(cfg *config.Config) (i Identity, err error) {
	i.Settings = cfg
	if i.Name, err = cfg.NodeName(); err != nil {
		return i, err
	}
	if i.BootID, err = hostinfo.BootID(); err != nil {
		return i, err
	}
	proc, err := kernel.NewProc("")
	if err != nil {
		return i, err
	}
	if i.Booted, err = proc.BootTime(); err != nil {
		return i, err
	}
	if i.Rules, err = cfg.Rules(); err != nil {
		return i, err
	}
	i.Hardware, err = machine.Open(cfg)
	return i, err
}

// Enabled reports whether a feature gate is on.
func (i Identity) Enabled(gate string) bool { return i.Settings.Enabled(gate) }

// Machine returns the node's hardware now.
func (i Identity) Machine() *topology.Machine { return i.Hardware.Get().Machine }

// Facts returns what the settings and the hardware say of the node.
func (i Identity) Facts() nodestatus.Facts {
	h := i.Hardware.Get()
	f := nodestatus.Facts{
		Capacity: h.Capacity, Allocatable: h.Allocatable,
		Placement: nodestatus.Placement{Rules: i.Rules},
	}
	if h.CPUs != nil {
		f.Placement.IsolatedCPUs = h.CPUs.Isolated().Size()
	}
	return f
}

// Quarantined tells of a file that was moved aside since it was unusable, and what follows. Other errors are
// returned.
func (n Node) Quarantined(ctx context.Context, err error, reason, then string) error {
	if !errors.Is(err, files.ErrUnusable) {
		return err
	}
	klog.FromContext(ctx).Error(err, "A file of the agent is not used", "then", then)
	n.Events.OnNode(v1.EventTypeWarning, reason, err.Error()+"; "+then)
	return nil
}
