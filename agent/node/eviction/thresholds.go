package eviction

import (
	"fmt"
	"maps"
	"slices"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/agent/node/config"
)

// Threshold is met while less than Value is available of a signal.
type Threshold struct {
	Signal Signal
	Value  config.Threshold
	// Reclaim is how much more than Value has to be available before a threshold that was met is not
	// met any more.
	Reclaim config.Threshold
	// Soft: pods are evicted only when the threshold has been met for Grace. A hard one acts at once.
	Soft  bool
	Grace time.Duration
}

// of returns the amount below which the threshold is met. reclaiming: it was met before.
func (t Threshold) of(capacity int64, reclaiming bool) int64 {
	least := t.Value.Of(capacity)
	if reclaiming {
		least += t.Reclaim.Of(capacity)
	}
	return least
}

// met reports whether the threshold is met.
func (t Threshold) met(r Readings, reclaiming bool) bool {
	reading, known := r[t.Signal]
	return known && reading.Available < t.of(reading.Capacity, reclaiming)
}

// withImages reports whether the threshold is of writable layers that are where images are: those of
// imagefs hold.
func (t Threshold) withImages(r Readings) bool {
	of, layers := map[Signal]Signal{
		ContainerFSAvailable: ImageFSAvailable, ContainerFSInodesFree: ImageFSInodesFree,
	}[t.Signal]
	_, images := r[of]
	_, known := r[t.Signal]
	return layers && images && !known
}

// Thresholds are the thresholds of the settings. Where pods may request what hard eviction keeps free, they
// may use it too, as with the kubelet: what is left of the limit of all pods has no threshold.
func Thresholds(cfg *config.Config) ([]Threshold, error) {
	of := cfg.Kubelet
	if cfg.IgnoreEviction {
		of.EnforceNodeAllocatable = nil
	}
	return Parse(&of)
}

// Parse returns the thresholds of a valid configuration, in the order in which they are relieved:
// memory first, and the hard ones of a signal before the soft ones. containerfs has no settings of its
// own, and those that name it count for nothing: those of nodefs hold for it too, if it is read. If the
// limit of all pods is enforced, so does that of memory for what is left of it.
func Parse(k *kubeletv1beta1.KubeletConfiguration) (out []Threshold, err error) {
	for soft, values := range []map[string]string{k.EvictionHard, k.EvictionSoft} {
		for _, signal := range slices.Sorted(maps.Keys(values)) {
			t := Threshold{Signal: Signal(signal), Soft: soft == 1}
			value, on, err := config.ParseThreshold(values[signal])
			if err != nil {
				return nil, fmt.Errorf("eviction threshold of %s: %w", signal, err)
			}
			if !on || config.IsDerived(signal) {
				continue
			}
			t.Value = value
			if least, set := k.EvictionMinimumReclaim[signal]; set {
				if t.Reclaim, _, err = config.ParseThreshold(least); err != nil {
					return nil, fmt.Errorf("evictionMinimumReclaim of %s: %w", signal, err)
				}
			}
			if t.Soft {
				if t.Grace, err = time.ParseDuration(k.EvictionSoftGracePeriod[signal]); err != nil {
					return nil, fmt.Errorf("evictionSoftGracePeriod of %s: %w", signal, err)
				}
			}
			out = append(out, t)
		}
	}
	derived := map[Signal]Signal{
		NodeFSAvailable: ContainerFSAvailable, NodeFSInodesFree: ContainerFSInodesFree,
	}
	enforced := slices.Contains(k.EnforceNodeAllocatable, "pods")
	for _, t := range slices.Clone(out) {
		if t.Signal == MemoryAvailable && !t.Soft && enforced {
			t.Signal = AllocatableMemoryAvailable
			out = append(out, t)
		} else if of, ok := derived[t.Signal]; ok {
			t.Signal = of
			out = append(out, t)
		}
	}
	slices.SortStableFunc(out, func(a, b Threshold) int { return order(a.Signal) - order(b.Signal) })
	return out, nil
}

// order is the place of a signal among those that are met at a time.
func order(s Signal) int {
	return slices.Index([]Signal{MemoryAvailable, AllocatableMemoryAvailable, NodeFSAvailable,
		ImageFSAvailable, ContainerFSAvailable, NodeFSInodesFree, ImageFSInodesFree,
		ContainerFSInodesFree, PIDAvailable}, s)
}
