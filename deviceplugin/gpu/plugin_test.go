package gpu_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
)

func rig(t testing.TB, name string) *mock.Rig {
	t.Helper()
	m, err := mock.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return mock.New(m)
}

// do gives orders to a rig.
func do(t testing.TB, r *mock.Rig, orders ...string) {
	t.Helper()
	for _, order := range orders {
		if err := r.Do(order); err != nil {
			t.Fatal(err)
		}
	}
}

// lever returns a function that gives orders to a rig, one of which wakes the plugin.
func lever(r *mock.Rig, orders ...string) func(context.Context) error {
	return func(context.Context) error {
		for _, order := range orders {
			if err := r.Do(order); err != nil {
				return err
			}
		}
		return nil
	}
}

// lines records what the plugin logs.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) log(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, line)
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.all, func(line string) bool { return strings.Contains(line, part) })
}

// The plugin passes every check, whatever it offers.
func TestPlugin(t *testing.T) {
	shared := func(s *gpu.Settings) {
		s.Shared = []gpu.Sharing{{Resource: gpu.GPUResource, As: "nvidia.com/gpu.shared",
			Replicas: 4}}
	}
	for _, c := range []struct {
		name, machine, resource string
		orders                  []string
		set                     func(*gpu.Settings)
	}{
		{name: "whole", machine: "dgxh100", resource: gpu.GPUResource},
		{name: "every way", machine: "dgxa100", resource: gpu.GPUResource,
			set: func(s *gpu.Settings) {
				s.List = []gpu.ListStrategy{gpu.EnvVar, gpu.CDIAnnotations, gpu.CDICRI}
				s.PassDeviceSpecs = true
			}},
		{name: "shared", machine: "pcie8", resource: "nvidia.com/gpu.shared", set: shared},
		{name: "mixed", machine: "dgxh100", resource: "nvidia.com/mig-1g.10gb",
			orders: []string{"mig 7 on", "divide 7 1g.10gb=7"},
			set:    func(s *gpu.Settings) { s.MIG = gpu.MIGMixed }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := rig(t, c.machine)
			do(t, r, c.orders...)
			set := gpu.Defaults()
			set.CDI.Dir = t.TempDir()
			if c.set != nil {
				c.set(&set)
			}
			last := len(r.Machine().GPUs) - 1
			host, err := r.Machine().Topology()
			if err != nil {
				t.Fatal(err)
			}
			report := check.Test(t, check.Config{
				Resource: c.resource, Nodes: host.NodeSet(), CDI: []string{set.CDI.Dir},
				Run: func(ctx context.Context, dirs check.Dirs) error {
					said := &lines{}
					p, err := gpu.New(gpu.Config{Driver: r, Settings: set, Dir: dirs.Plugins,
						Interval: 1e8, Log: said.log})
					if err != nil {
						return err
					}
					return p.Run(ctx)
				},
				Levers: map[check.Lever]func(context.Context) error{
					check.Sicken: lever(r, fmt.Sprintf("ecc %d 2", last)),
					check.Cure:   lever(r, fmt.Sprintf("reset %d", last)),
				},
			})
			if n := report.Count(check.Warning); n > 0 || report.Resource != c.resource {
				t.Errorf("of %s there are %d warnings", report.Resource, n)
			}
		})
	}
}
