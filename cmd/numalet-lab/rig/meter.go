package rig

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/memory"
)

// meter follows how much is used, and how usable the rest is.
type meter struct {
	gauges *gauges
	supply *supply
	// resources holds cpu, memory and the other resources that pods of the stream ask for. capacity
	// and used have the same order; units are millicores, bytes or devices.
	resources      []string
	capacity, used []int64
	asks           map[*v1.Pod][]int64
	names          []string // names of the gauges
	shared         bool     // no container gets exclusive CPUs
}

// The first gauges. After them come the used share of each resource, the fragmentation of CPUs,
// that of memory if memory is placed on nodes, and for each device resource its fragmentation and
// stranded devices.
const (
	gaugeRunning = iota
	gaugeWaiting
	gaugeUsed
)

func newMeter(site *Site, p Policy, s Stream, static *memory.Static) *meter {
	m := &meter{
		asks: map[*v1.Pod][]int64{}, shared: p.SharedCPUs, names: []string{"running", "waiting"},
	}
	devices := m.ask(site, s)
	for _, name := range m.resources {
		m.capacity = append(m.capacity, max(1, site.capacity(name)))
		m.names = append(m.names, "used "+name)
	}
	m.used = make([]int64, len(m.resources))
	m.supply = newSupply(site, p, s.Shapes, devices)
	if static != nil {
		m.supply.stock(site.Machine, static, m.resources)
	}
	m.names = append(m.names, "fragmentation cpu")
	for _, s := range m.supply.memory {
		m.names = append(m.names, "fragmentation "+s.resource)
	}
	for _, name := range devices {
		m.names = append(m.names, "fragmentation "+name, "stranded "+name)
	}
	m.gauges = newGauges(len(m.names), s.end())
	return m
}

// ask records what the pods of the stream ask for. It takes only resources that the machine has, so
// that they are the same under all policies. It returns the device resources among them.
func (m *meter) ask(site *Site, s Stream) (devices []string) {
	m.resources = []string{"cpu", "memory"}
	all := slices.Concat(s.Shapes, shapesOf(s.Sizes))
	demands := make([]map[string]int64, len(all))
	wanted := map[string]bool{}
	for i, shape := range all {
		demands[i] = shape.demands()
		for name, n := range demands[i] {
			wanted[name] = wanted[name] || n > 0 && site.has(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if wanted[name] && !slices.Contains(m.resources, name) {
			m.resources = append(m.resources, name)
			if !isCounted(name) {
				devices = append(devices, name)
			}
		}
	}
	for i, shape := range all {
		asks := make([]int64, len(m.resources))
		for at, name := range m.resources {
			asks[at] = demands[i][name]
		}
		m.asks[shape.Pod] = asks
	}
	return devices
}

func (m *meter) set(gauge int, value float64) { m.gauges.values[gauge] = value }

// move subtracts what a pod got (sign -1) from what is free, or adds it back (sign 1).
func (m *meter) move(pod tenant, running, sign int) {
	m.supply.move(pod.held, sign)
	m.set(gaugeRunning, float64(running))
	for i, n := range m.asks[pod.shape.Pod] {
		m.used[i] -= int64(sign) * n
		m.set(gaugeUsed+i, float64(m.used[i])/float64(m.capacity[i]))
	}
	at := gaugeUsed + len(m.resources)
	m.set(at, m.supply.cpus.fragmentation())
	for i := range m.supply.memory {
		at++
		m.set(at, m.supply.memory[i].fragmentation(m.supply.groups))
	}
	for i := range m.supply.devices {
		d := &m.supply.devices[i]
		m.set(at+1+2*i, d.fragmentation())
		m.set(at+2+2*i, d.stranded(m.supply.cpus.free))
	}
}

// fragmentation returns the present values of all that is measured of it, by resource.
func (m *meter) fragmentation() map[string]float64 {
	out := map[string]float64{}
	for i, name := range m.names {
		if of, is := strings.CutPrefix(name, "fragmentation "); is && !(m.shared && of == "cpu") {
			out[of] = m.gauges.values[i]
		}
	}
	return out
}

// result returns the averages and series at the end of the run.
func (m *meter) result() ([]ResourceUse, Series) {
	m.gauges.advance(m.gauges.end)
	series := Series{Step: m.gauges.step / 1e9}
	mean := map[string]*float64{}
	for i, name := range m.names {
		if m.shared && name == "fragmentation cpu" {
			continue
		}
		series.Lines = append(series.Lines, Line{Name: name, Values: m.gauges.line(i)})
		mean[name] = new(m.gauges.mean(i))
	}
	var out []ResourceUse
	for _, name := range m.resources {
		out = append(out, ResourceUse{
			Resource: name, Used: *mean["used "+name],
			Fragmentation: mean["fragmentation "+name], Stranded: mean["stranded "+name],
		})
	}
	return out, series
}
