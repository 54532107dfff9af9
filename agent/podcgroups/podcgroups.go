// Package podcgroups keeps the cgroups above the pods: what all pods together may use, and the
// groups of the QoS classes. It says what a pod's own cgroup is made with.
package podcgroups

import (
	"context"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/config"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/topology"
)

// Config is what the cgroups follow from.
type Config struct {
	Kubelet  *kubeletconfig.KubeletConfiguration
	Tree     *cgroups.Tree // nil: pods get no cgroups of ours
	Hardware func() machine.Hardware
	State    func() allocation.State
	// Pod is the spec of a pod, Active are the pods that hold resources of the node.
	Pod    func(types.UID) (*v1.Pod, bool)
	Active func() []*v1.Pod
}

// Groups are the cgroups of one node.
type Groups struct {
	cfg     Config
	written written // Update's own
}

// written is what the groups were written for last.
type written struct {
	machine *topology.Machine
	pods    sets.Set[types.UID]
	at      time.Time
}

// New writes nothing.
func New(cfg Config) *Groups {
	return &Groups{cfg: cfg, written: written{machine: cfg.Hardware().Machine}}
}

// qosPeriod is how often the QoS groups are written even if no pod came or went.
const qosPeriod = time.Minute

// Ensure makes kubepods and the QoS groups, with what all pods together may use.
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

// EnforceReserved limits the cgroups of daemons that enforceNodeAllocatable names to what is reserved
// for them, and says of each that it was. It is done once: others own these cgroups.
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

// Update keeps the groups in line with the machine and the pods. The QoS groups are written when
// other pods are active, and once in a while.
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

// Options is what the cgroup of a pod is made with beside what its spec says. The pod's CPU quota
// is lifted when all its containers have CPUs of their own: it could only throttle them.
func (g *Groups) Options(pod *v1.Pod) cgroups.PodOptions {
	k := g.cfg.Kubelet
	exclusive := g.cfg.Hardware().CPUs != nil &&
		g.cfg.State().Pods[pod.UID].WhollyExclusive(pod)
	return cgroups.PodOptions{
		NoQuota: !*k.CPUCFSQuota || exclusive,
		Period:  k.CPUCFSQuotaPeriod.Duration,
		Pids:    *k.PodPidsLimit,
	}
}

// CPULimit is the CPU quota that a pod's cgroup would be made with now, zero if none; none, too, of
// a pod that no source has spoken of yet.
func (g *Groups) CPULimit(uid types.UID) cgroups.CPULimit {
	pod, ok := g.cfg.Pod(uid)
	if !ok {
		return cgroups.CPULimit{}
	}
	return cgroups.PodResources(pod, g.Options(pod)).CPULimit()
}
