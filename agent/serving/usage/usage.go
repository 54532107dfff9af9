// Package usage says for evictions what the node and its pods use, from statistics and what is measured of
// disks.
package usage

import (
	"context"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/eviction/wake"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/serving/stats"
	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/agent/storage/localstorage"
)

// Usage says for evictions what the node and its pods use.
type Usage struct {
	Stats    *stats.Collector
	Disks    *localstorage.Meter
	Hardware func() machine.Hardware
	// PodsGroup is the cgroup of all pods; "": there is none. Limited: its memory has a limit.
	PodsGroup string
	Limited   bool
	// Played changes what was measured of the node; nil: nothing does.
	Played func(*statsapi.NodeStats)
}

// Meter measures for evictions; the kernel tells when memory is short.
func (u Usage) Meter(tells *wake.Kernel) eviction.Meter {
	return eviction.Meter{
		Glance: u.glance, Measure: u.measure, Anew: u.Disks.Anew, Woken: tells.Woken(),
		Arm: func(ctx context.Context, s eviction.Signal, left int64) {
			switch s {
			case eviction.MemoryAvailable:
				tells.Arm(ctx, "/", left)
			case eviction.AllocatableMemoryAvailable:
				tells.Arm(ctx, u.PodsGroup, left)
			}
		},
	}
}

// glance says what the node uses.
func (u Usage) glance(context.Context) (statsapi.Summary, eviction.Host, error) {
	summary, s, err := u.Stats.Kernel(false)
	return u.played(summary), u.onHost(s), err
}

func (u Usage) played(s statsapi.Summary) statsapi.Summary {
	if u.Played != nil {
		u.Played(&s.Node)
	}
	return s
}

// measure says what the node and its pods use. Of disks only the runtime knows all.
func (u Usage) measure(ctx context.Context, of eviction.Signal) (eviction.Measured, error) {
	if u.PodsGroup != "" && !of.OnDisk() {
		summary, s, _ := u.Stats.Kernel(true) // what could not be read is short of nothing
		return eviction.Measured{Summary: u.played(summary), Host: u.onHost(s), At: s.At}, nil
	}
	summary, s, err := u.Stats.Measure(ctx, of.OnDisk())
	if err != nil {
		return eviction.Measured{}, err
	}
	out := eviction.Measured{Summary: u.played(summary), Host: u.onHost(s), At: s.At}
	if of.OnDisk() {
		out.Beyond = beyond(u.Disks.Beyond(ctx), s)
	}
	return out, nil
}

// beyond says what pods use of disks beyond their statistics.
func beyond(all map[types.UID]localstorage.Beyond, s *stats.Snapshot) map[types.UID]eviction.Beyond {
	amount := func(u diskusage.Usage) eviction.Held {
		return eviction.Held{Bytes: int64(u.Bytes), Inodes: int64(u.Inodes)}
	}
	out := make(map[types.UID]eviction.Beyond, len(all))
	for uid, one := range all {
		out[uid] = eviction.Beyond{Node: amount(one.Held.On), Layers: amount(one.Held.Layers),
			Grown: int64(one.Grown), Partial: one.Partial || one.Held.Partial}
	}
	for _, p := range s.Pods {
		uid := types.UID(p.Stats.PodRef.UID)
		one := out[uid]
		one.Partial = one.Partial ||
			slices.ContainsFunc(p.Containers, func(c stats.Container) bool { return c.Partial })
		out[uid] = one
	}
	return out
}

// onHost says how much memory the machine has, and all pods together may use.
func (u Usage) onHost(s *stats.Snapshot) eviction.Host {
	host := eviction.Host{Memory: int64(s.Machine.Memory)}
	if u.Limited {
		h := u.Hardware()
		limit := h.Capacity[v1.ResourceMemory].DeepCopy()
		limit.Sub(h.Reservation.Reserved[v1.ResourceMemory])
		host.PodsCapacity = limit.Value()
	}
	return host
}
