package dra

import (
	"fmt"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

func counterSetName(g gpu.GPU) string { return gpuName(g) + "-counter-set" }

func memorySlice(n int) string { return fmt.Sprintf("memory-slice-%d", n) }

// takes returns what a place takes of each counter: its memory slices one by one, and numbers of
// compute slices and engines.
func takes(p gpu.Partition) map[string]int64 {
	out := map[string]int64{"compute-slices": int64(p.Compute)}
	for n := range p.Size {
		out[memorySlice(p.Start+n)] = 1
	}
	for name, count := range map[string]int{"jpeg-engines": p.JPEG, "ofa-engines": p.OFA} {
		if count > 0 {
			out[name] = int64(count)
		}
	}
	return out
}

// counterSets returns what the places for MIG devices share: each memory slice of a GPU is given
// once, and of the rest no more than the profile with the most has.
func (i inventory) counterSets() (out []resourcev1.CounterSet) {
	done := map[string]bool{}
	for _, d := range i.devices {
		name := counterSetName(d.gpu)
		if d.place == nil || done[name] {
			continue
		}
		done[name] = true
		counters := map[string]resourcev1.Counter{}
		for _, p := range d.gpu.Traits.Partitions {
			for name, count := range takes(p) {
				if has := counters[name]; has.Value.Value() < count {
					counters[name] = resourcev1.Counter{Value: *number(count)}
				}
			}
		}
		out = append(out, resourcev1.CounterSet{Name: name, Counters: counters})
	}
	return out
}

// consumed returns what a place takes of its GPU's counters.
func consumed(d device) resourcev1.DeviceCounterConsumption {
	counters := map[string]resourcev1.Counter{}
	for name, count := range takes(*d.place) {
		counters[name] = resourcev1.Counter{Value: *number(count)}
	}
	return resourcev1.DeviceCounterConsumption{CounterSet: counterSetName(d.gpu),
		Counters: counters}
}
