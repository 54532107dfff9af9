package dra

import (
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"pgregory.net/rapid"
)

// Whatever the counters allow, in whatever order it comes and goes, is possible on the machine; and
// what they refuse is not.
func TestCountersAreTheMachine(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		machine := rapid.SampledFrom([]string{"dgxa100", "dgxh100", "dgxb200", "gb200", "h100nvl8"}).
			Draw(rt, "machine")
		r := rigOf(t, machine)
		o := options()
		o.Dynamic = true
		i := inventoryOf(stateOf(t, r, "mig 0 on", "mig 1 on"), o, time.Now())
		var places []device
		for _, d := range i.devices {
			if d.place != nil {
				places = append(places, d)
			}
		}
		left := map[string]map[string]int64{}
		for _, set := range i.counterSets() {
			left[set.Name] = map[string]int64{}
			for name, c := range set.Counters {
				left[set.Name][name] = c.Value.Value()
			}
		}
		given := map[string]string{} // UUIDs by device
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			d := rapid.SampledFrom(places).Draw(rt, "place")
			takes := consumed(d)
			if uuid := given[d.name]; uuid != "" {
				if err := r.Remove(d.gpu.UUID, uuid); err != nil {
					rt.Fatal(err)
				}
				delete(given, d.name)
				book(left, takes, 1)
				continue
			}
			book(left, takes, -1)
			allowed := true
			for _, rest := range left[takes.CounterSet] {
				allowed = allowed && rest >= 0
			}
			instance, err := r.Divide(d.gpu.UUID, *d.place)
			if allowed != (err == nil) {
				rt.Fatalf("%s: the counters allow %s: %t; the machine: %v", machine, d.name, allowed, err)
			}
			if err != nil {
				book(left, takes, 1)
				continue
			}
			given[d.name] = instance.UUID
		}
	})
}

func book(left map[string]map[string]int64, takes resourcev1.DeviceCounterConsumption, sign int64) {
	for name, c := range takes.Counters {
		left[takes.CounterSet][name] += sign * c.Value.Value()
	}
}
