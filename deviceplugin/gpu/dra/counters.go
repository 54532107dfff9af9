package dra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// computeSlices is the counter of a GPU's compute slices.
const computeSlices = "compute-slices"

func counterSetName(g gpu.GPU) string { return gpuName(g) + "-counter-set" }

func memorySlice(n int) string { return fmt.Sprintf("memory-slice-%d", n) }

// counterSets returns what the places for MIG devices share: each memory slice of a GPU is given
// once, and no more compute slices than the largest profile has.
func (i inventory) counterSets() (out []resourcev1.CounterSet) {
	done := map[string]bool{}
	for _, d := range i.devices {
		name := counterSetName(d.gpu)
		if d.place == nil || done[name] {
			continue
		}
		done[name] = true
		counters, compute := map[string]resourcev1.Counter{}, 0
		for _, p := range d.gpu.Traits.Partitions {
			for n := range p.Size {
				counters[memorySlice(p.Start+n)] = resourcev1.Counter{Value: *number(1)}
			}
			compute = max(compute, p.Compute)
		}
		counters[computeSlices] = resourcev1.Counter{Value: *number(int64(compute))}
		out = append(out, resourcev1.CounterSet{Name: name, Counters: counters})
	}
	return out
}

// consumed returns what a place takes of its GPU's counters.
func consumed(d device) resourcev1.DeviceCounterConsumption {
	counters := map[string]resourcev1.Counter{
		computeSlices: {Value: *number(int64(d.place.Compute))},
	}
	for n := range d.place.Size {
		counters[memorySlice(d.place.Start+n)] = resourcev1.Counter{Value: *number(1)}
	}
	return resourcev1.DeviceCounterConsumption{CounterSet: counterSetName(d.gpu),
		Counters: counters}
}
