package resources

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology"
)

// GroupsConfig holds what the cgroups above the pods follow from.
type GroupsConfig struct {
	Kubelet  *kubeletconfig.KubeletConfiguration
	Tree     *cgroups.Tree // nil: pods get no cgroups of ours
	Hardware func() machine.Hardware
	Active   func() []*v1.Pod // the pods that hold resources of the node
}

// Groups keeps the cgroups above the pods: what all pods together may use, and the groups of the
// QoS classes.
type Groups struct {
	cfg     GroupsConfig
	written written // Update owns it
}

// written says for what the groups were last written.
type written struct {
	machine *topology.Machine
	pods    sets.Set[types.UID]
	at      time.Time
}

// NewGroups writes nothing.
func NewGroups(cfg GroupsConfig) *Groups {
	return &Groups{cfg: cfg, written: written{machine: cfg.Hardware().Machine}}
}

// qosPeriod is how often the QoS groups are written even if no pod came or went.
const qosPeriod = time.Minute

// Ensure makes kubepods, with a limit on what all pods together may use, and the QoS groups.
func (g *Groups) Ensure(ctx context.Context) error {
	if g.cfg.Tree == nil {
		return nil
	}
	h := g.cfg.Hardware()
	var reserved []v1.ResourceList
	for _, enforce := range g.cfg.Kubelet.EnforceNodeAllocatable {
		if enforce == "pods" {
			reserved = append(reserved, h.Reservation.Reserved)
		}
	}
	capacity := node.Capacity(h.Machine, h.Reservation.MaxPods)
	// Pids of all pods together are not limited: podPidsLimit is each pod's.
	return g.cfg.Tree.EnsureNode(ctx, cgroups.NodeResources(capacity, 0, reserved...))
}

// EnforceReserved limits the cgroups of daemons that enforceNodeAllocatable names to what is
// reserved for them, and calls done with a message for each. It is called once: others own these
// cgroups.
func (g *Groups) EnforceReserved(ctx context.Context, done func(message string)) error {
	k := g.cfg.Kubelet
	if g.cfg.Tree == nil {
		return nil
	}
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
		done(fmt.Sprintf("Updated limits on the %s cgroup %s", whose, name))
	}
	return nil
}

// Update keeps the groups in line with the machine and the pods. It writes the QoS groups when
// other pods are active, and each qosPeriod.
func (g *Groups) Update(ctx context.Context) error {
	if g.cfg.Tree == nil {
		return nil
	}
	machine, active := g.cfg.Hardware().Machine, g.cfg.Active()
	uids := sets.New[types.UID]()
	for _, pod := range active {
		uids.Insert(pod.UID)
	}
	if machine != g.written.machine {
		if err := g.Ensure(ctx); err != nil {
			return fmt.Errorf("the limits of all pods together stay until the next change: %w", err)
		}
	} else if uids.Equal(g.written.pods) && time.Since(g.written.at) < qosPeriod {
		return nil
	}
	if err := g.cfg.Tree.UpdateQOS(ctx, active); err != nil {
		return err
	}
	g.written = written{machine, uids, time.Now()}
	return nil
}
