package resources

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology"
)

// GroupsConfig holds what the cgroups above the pods follow from.
type GroupsConfig struct {
	Kubelet  *kubeletconfig.KubeletConfiguration
	Tree     *cgroups.Tree // nil: pods get no cgroups of ours
	Hardware func() machine.Hardware
	Active   func() []*v1.Pod // the pods that hold resources of the node
	// Processes returns how many processes and threads the machine can have; 0: not known.
	Processes func() int64
	// Percent of the memory that pods request is kept from lower QoS classes (qosReserved).
	Percent int64
	// Tell makes an event of the node.
	Tell func(eventType, reason, message string)
}

// The reasons of the node's events.
const (
	reasonEnforced    = "NodeAllocatableEnforced"
	reasonNotEnforced = "FailedNodeAllocatableEnforcement"
)

// Groups keeps the cgroups above the pods: what all pods together may use, and the groups of the
// QoS classes.
type Groups struct {
	cfg GroupsConfig

	// Start and then Update own the fields below.
	written written
	again   time.Time // when limits that were refused are tried again
}

// written says for what the groups were last written.
type written struct {
	machine *topology.Machine // nil: not yet, or it was refused
	pods    sets.Set[types.UID]
	at      time.Time
}

// NewGroups writes nothing.
func NewGroups(cfg GroupsConfig) *Groups { return &Groups{cfg: cfg} }

// qosPeriod is how often the QoS groups are written even if no pod came or went.
const qosPeriod = time.Minute

// Start makes the groups, and limits those of daemons. Limits of all pods together that are refused
// while pods run, such as one below what they use, do not keep the agent from starting: Update
// repeats them.
func (g *Groups) Start(ctx context.Context) error {
	if g.cfg.Tree == nil {
		return nil
	}
	had := cgroups.Exists(g.cfg.Tree)
	if err := g.ensure(ctx); err != nil && !had {
		return err
	}
	err := g.enforceReserved(ctx)
	if err != nil {
		g.cfg.Tell(v1.EventTypeWarning, reasonNotEnforced, err.Error())
	}
	return err
}

// ensure makes kubepods, with a limit on what all pods together may use, and the QoS groups.
func (g *Groups) ensure(ctx context.Context) error {
	h := g.cfg.Hardware()
	limits := cgroups.NodeResources(nodestatus.Capacity(h.Machine, h.Reservation.MaxPods),
		g.cfg.Processes(), g.enforced(h)...)
	if err := g.cfg.Tree.EnsureNode(ctx, limits); err != nil {
		g.written.machine, g.again = nil, time.Now().Add(qosPeriod)
		g.cfg.Tell(v1.EventTypeWarning, reasonNotEnforced, fmt.Sprintf(
			"Failed to update Node Allocatable Limits %q: %v", g.cfg.Tree.PodsPath(), err))
		return fmt.Errorf("the limits of all pods together stay until the next try: %w", err)
	}
	if g.written.machine == nil {
		g.cfg.Tell(v1.EventTypeNormal, reasonEnforced, "Updated Node Allocatable limit across pods")
	}
	g.written.machine = h.Machine
	return nil
}

// enforced lists what is reserved, if the pods are to be kept from it.
func (g *Groups) enforced(h machine.Hardware) []v1.ResourceList {
	if !slices.Contains(g.cfg.Kubelet.EnforceNodeAllocatable, "pods") {
		return nil
	}
	return []v1.ResourceList{h.Reservation.Reserved}
}

// enforceReserved limits the cgroups of daemons that enforceNodeAllocatable names to what is
// reserved for them. It is done once: others own these cgroups.
func (g *Groups) enforceReserved(ctx context.Context) error {
	k := g.cfg.Kubelet
	for _, what := range k.EnforceNodeAllocatable {
		whose, compressible := strings.CutSuffix(what, "-compressible")
		var name string
		var reserved map[string]string
		switch whose {
		case "system-reserved":
			name, reserved = k.SystemReservedCgroup, k.SystemReserved
		case "kube-reserved":
			name, reserved = k.KubeReservedCgroup, k.KubeReserved
		default:
			continue
		}
		list, err := config.ParseReserved(reserved)
		if err == nil {
			err = g.cfg.Tree.EnforceReserved(ctx, name, cgroups.ReservedResources(list, compressible))
		}
		if err != nil {
			return fmt.Errorf("enforceNodeAllocatable %s: %w", what, err)
		}
		g.cfg.Tell(v1.EventTypeNormal, reasonEnforced, fmt.Sprintf("Updated limits on %s cgroup %s",
			strings.ReplaceAll(whose, "-", " "), name))
	}
	return nil
}

// Update keeps the groups in line with the machine and the pods. It writes the QoS groups when
// other pods are active, and each qosPeriod.
func (g *Groups) Update(ctx context.Context) error {
	if g.cfg.Tree == nil {
		return nil
	}
	h, active := g.cfg.Hardware(), g.cfg.Active()
	uids := sets.New[types.UID]()
	for _, pod := range active {
		uids.Insert(pod.UID)
	}
	if h.Machine != g.written.machine && !time.Now().Before(g.again) {
		if err := g.ensure(ctx); err != nil {
			return err
		}
	} else if uids.Equal(g.written.pods) && time.Since(g.written.at) < qosPeriod {
		return nil
	}
	if err := g.cfg.Tree.UpdateQOS(ctx, active, g.reserve(h)); err != nil {
		return err
	}
	g.written.pods, g.written.at = uids, time.Now()
	return nil
}

// reserve says how much of their requests pods keep from those of lower QoS classes.
func (g *Groups) reserve(h machine.Hardware) cgroups.Reserve {
	if g.cfg.Percent == 0 {
		return cgroups.Reserve{}
	}
	return cgroups.Reserve{Percent: g.cfg.Percent, Memory: memoryOfPods(h)}
}

// memoryOfPods returns what all pods together may use, in bytes: what is not reserved, also where
// that is not enforced. It includes huge pages and what hard eviction keeps free, as with the
// kubelet.
func memoryOfPods(h machine.Hardware) int64 {
	capacity := nodestatus.Capacity(h.Machine, h.Reservation.MaxPods)
	return cgroups.NodeResources(capacity, 0, h.Reservation.Reserved).Memory
}
