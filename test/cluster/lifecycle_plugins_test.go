package cluster_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/topology"
)

// pluginScenarios run pods with two of four devices; each has a resource and a plugin of its own
// that fails in one of its calls.
func pluginScenarios() []scenario {
	fails := func(rpc pluginsim.RPC, count int) pluginsim.Fault {
		return pluginsim.Fault{RPC: rpc, Code: "INTERNAL", Message: "it is broken", Count: count}
	}
	pod := of("", devices)
	return []scenario{
		{name: "plugin", before: plugin(), scripts: "main: exit=1 after=4s attempts=1", spec: pod,
			steps: until(is("main", 1, running))},
		{name: "plugin-two", before: plugin(), spec: `{containers: [{name: main, image: APP, ` +
			devices + `}, {name: second, image: APP, ` + devices + `}]}`, steps: until(isReady)},
		{name: "plugin-init", before: plugin(), scripts: "init: exit=0 after=3s",
			spec: `{initContainers: [{name: init, image: APP, ` + devices + `}],
 containers: [{name: main, image: APP, ` + devices + `}]}`, steps: until(isReady)},
		{name: "plugin-too-few", before: plugin(),
			spec:  of("", strings.Replace(devices, ": 2", ": 5", 1)),
			steps: until(isPhase(v1.PodFailed))},
		{name: "plugin-options-fails-once", before: plugin(fails(pluginsim.Options, 1)), spec: pod,
			steps: until(isReady)},
		{name: "plugin-list-ends", before: both(plugin(), listEnds), spec: pod,
			steps: until(isPhase(v1.PodFailed))},
		{name: "plugin-preferred-fails", before: plugin(fails(pluginsim.Preferred, 0)), spec: pod,
			steps: until(hasCome)},
		{name: "plugin-allocate-fails", before: plugin(fails(pluginsim.Allocate, 0)), spec: pod,
			steps: until(hasCome)},
		{name: "plugin-start-fails-once", before: plugin(fails(pluginsim.PreStart, 1)), spec: pod,
			steps: until(isReady)},
	}
}

// pluginsAtOnce bounds the scenarios with a plugin at the same time: each needs an inotify
// instance, of which a user has 128.
const pluginsAtOnce = 4

// devices requests the resource that is named after the pod.
const devices = `resources: {limits: {example.com/POD: 2}}`

// plugin starts a plugin of the resource that is named after the pod, and waits until the node has
// its devices. The plugin stops with the scenario.
func plugin(faults ...pluginsim.Fault) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		all, err := pluginsim.Spread("d", 4, topology.NewNodeSet(0), pluginsim.Blocked)
		if err != nil {
			return err
		}
		p, err := pluginsim.New(pluginsim.Config{Resource: "example.com/" + pod,
			Dir: filepath.Join(s.Root, "device-plugins"), Control: s.pluginControl(pod),
			Devices: all, Faults: faults, PreStart: true,
			Out: calls{s, pod}})
		if err != nil {
			return err
		}
		ended := make(chan error, 1)
		run, stop := context.WithCancel(ctx)
		s.plugins.Go(func() { ended <- p.Run(run) })
		s.atEnd(pod, stop)
		return s.awaitDevices(ctx, pod, 4, ended)
	}
}

// calls records the calls in a plugin's log.
type calls struct {
	side *scenarioNode
	pod  string
}

func (c calls) Write(line []byte) (int, error) {
	if _, call, is := strings.Cut(string(line), ": "+pluginsim.CallOf); is {
		c.side.Called(c.pod, "plugin", strings.TrimSpace(call))
	}
	return len(line), nil
}

func (s *scenarioNode) pluginControl(pod string) string { return filepath.Join(s.Dir, pod+".ctl") }

// listEnds makes the plugin end its list with an error, and waits until the node has no devices of
// it.
func listEnds(ctx context.Context, s *scenarioNode, pod string) error {
	err := pluginsim.NewClient(s.pluginControl(pod)).Fault(ctx,
		pluginsim.Fault{RPC: pluginsim.List, Code: "INTERNAL", Message: "it is broken"})
	if err != nil {
		return err
	}
	return s.awaitDevices(ctx, pod, 0, nil)
}

func devicesAreBack(ctx context.Context, s *scenarioNode, pod string) error {
	return s.awaitDevices(ctx, pod, 4, nil)
}

func both(first, second act) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		if err := first(ctx, s, pod); err != nil {
			return err
		}
		return second(ctx, s, pod)
	}
}

// awaitDevices waits until the node has so many devices of the pod's resource, unless their plugin
// has ended.
func (s *scenarioNode) awaitDevices(ctx context.Context, pod string, many int64,
	ended <-chan error) error {
	for began := time.Now(); ; {
		select {
		case err := <-ended:
			return fmt.Errorf("the plugin has ended: %v", err)
		default:
		}
		node, err := s.Client.CoreV1().Nodes().Get(ctx, s.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		has := node.Status.Allocatable[v1.ResourceName("example.com/"+pod)]
		switch {
		case has.Value() == many:
			return nil
		case time.Since(began) > harness.Patience:
			return fmt.Errorf("waited %v in vain for devices; the node has %v", harness.Patience,
				node.Status.Allocatable)
		case !sleep(ctx, 100*time.Millisecond):
			return ctx.Err()
		}
	}
}
