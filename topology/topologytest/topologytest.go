// Package topologytest makes machines for tests.
package topologytest

import (
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"
)

// Failer stops a test: *testing.T, *testing.B and *rapid.T do.
type Failer interface {
	Helper()
	Fatal(args ...any)
}

// Machine returns a machine of these nodes and that many CPUs. Each CPU is a core of its own, on node
// 0, unless one of changes has it otherwise.
func Machine(t Failer, nodes []topology.Node, cpus int, changes ...func(*topology.CPU)) *topology.Machine {
	t.Helper()
	spec := topology.Spec{Nodes: nodes}
	for id := range cpus {
		cpu := topology.CPU{ID: id, Core: topology.CoreID(id)}
		for _, change := range changes {
			change(&cpu)
		}
		spec.CPUs = append(spec.CPUs, cpu)
	}
	return Of(t, spec)
}

// Of returns the machine of a spec.
func Of(t Failer, spec topology.Spec) *topology.Machine {
	t.Helper()
	m, err := topology.NewMachine(spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Fixture returns the built-in machine of that name.
func Fixture(t Failer, name string) *topology.Machine {
	t.Helper()
	m, err := discover.Fixture(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
