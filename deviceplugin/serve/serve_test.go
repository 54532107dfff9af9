package serve_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/deviceplugin/serve"
	"github.com/numalet/numalet/topology"
)

// devices returns n devices on two nodes; the first one may be unhealthy.
func devices(n int, broken bool) (out []*v1beta1.Device) {
	for i := range n {
		out = append(out, &v1beta1.Device{ID: fmt.Sprint("d-", i), Health: v1beta1.Healthy,
			Topology: &v1beta1.TopologyInfo{Nodes: []*v1beta1.NUMANode{{ID: int64(i % 2)}}}})
	}
	if broken {
		out[0].Health = v1beta1.Unhealthy
	}
	return out
}

// A served plugin passes every check.
func TestCheck(t *testing.T) {
	const resource = "example.com/thing"
	var plugin atomic.Pointer[serve.Plugin] // of the last run
	set := func(n int, broken bool) func(context.Context) error {
		return func(context.Context) error {
			plugin.Load().SetDevices(devices(n, broken))
			return nil
		}
	}
	report := check.Test(t, check.Config{
		Patience: time.Minute, Resource: resource, Nodes: topology.NewNodeSet(0, 1),
		Run: func(ctx context.Context, dirs check.Dirs) error {
			p := serve.New(serve.Config{
				Dir: dirs.Plugins, Resource: resource, Log: func(string, ...any) {},
				Allocate: func(_ context.Context, ids []string) (
					*v1beta1.ContainerAllocateResponse, error) {
					return &v1beta1.ContainerAllocateResponse{
						Envs: map[string]string{"THINGS": fmt.Sprint(ids)}}, nil
				},
				Prepare: func(context.Context, []string) error { return nil },
			})
			p.SetDevices(devices(4, false))
			plugin.Store(p)
			return p.Run(ctx)
		},
		Levers: map[check.Lever]func(context.Context) error{
			check.Sicken: set(4, true), check.Cure: set(4, false),
			check.Vanish: set(3, false), check.Return: set(4, false),
			check.Multiply: set(100_000, false),
		},
	})
	for _, r := range report.Results {
		if r.Verdict == check.Warning {
			t.Errorf("%s: %s", r.Name, r.Happened)
		}
	}
	if report.Resource != resource || report.Devices != 4 {
		t.Errorf("the report is of %+v", report)
	}
}
