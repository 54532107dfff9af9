package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cmd/numalet-lab/hollow"
	"github.com/numalet/numalet/internal/await"

	"github.com/numalet/numalet/cmd/internal/cli"

	"github.com/numalet/numalet/agent/node/locks"
)

const nodesHelp = `Have this process be many nodes of a cluster, on machines that are data.

Each is a Node with its lease, status and NodeResourceTopology. What is bound to it is admitted
as an agent would: exclusive CPUs and devices by NUMA node, or rejected with the kubelet's
reasons. Containers run nothing: they end as sleep, exit, true and false in their commands say,
or the pod annotation sim.numalet.io/<container>, for example "exit=0 after=30s". There are no
volumes, no probes that fail and no streams. If nodes do not become ready, --log says why.

Nodes offer the GPUs and network interfaces that their machines have, as example.com/gpu and
example.com/nic, or what --device says; with --dra they publish them in ResourceSlices, and
the scheduler allocates them to claims, which no driver prepares. With the same root directory
pods keep what they hold when the command is started again.

  numalet nodes --kubeconfig admin.conf --machine fixture:epyc-nps4=400 \
    --machine rack.yaml=600 --device example.com/gpu=8`

// nodesOptions holds the flags of "numalet nodes" as the user wrote them.
type nodesOptions struct {
	hollow.Config
	machines, devices, taints []string
	policy, scope             string
	cleanup, log              bool
}

// newNodesCommand returns "numalet nodes".
func newNodesCommand() *cobra.Command {
	var o nodesOptions
	cmd := &cobra.Command{
		Use:   "nodes --kubeconfig FILE --machine MACHINE[=COUNT]",
		Short: cli.LabShort["nodes"],
		Long:  nodesHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.read(); err != nil {
				return err
			}
			return o.run(cmd)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "of somebody who may act for all nodes")
	f.StringArrayVar(&o.machines, "machine", nil, "fixture:NAME, a machine file in YAML or a "+
		"ghw snapshot, and how many such nodes: MACHINE=COUNT; may be repeated")
	f.StringArrayVar(&o.devices, "device", nil, "what every node offers, RESOURCE=COUNT, spread "+
		"over its NUMA nodes; may be repeated (default what its machine has)")
	f.BoolVar(&o.Claims, "dra", false, "devices are had by resource claim: ResourceSlices of the driver "+
		"gpu.example.com in place of the resource example.com/gpu")
	f.StringVar(&o.Prefix, "name-prefix", "hollow-", "what the names of the nodes begin with")
	f.StringToStringVar(&o.Labels, "label", nil, "labels of the nodes, KEY=VALUE")
	f.StringArrayVar(&o.taints, "taint", nil, "taint of the nodes, KEY=VALUE:EFFECT; may be repeated")
	f.StringVar(&o.Root, "root-dir", "", "where what pods hold is kept (default "+
		"numalet/nodes in the user's cache directory)")
	f.StringVar(&o.policy, "topology-manager-policy", "", "policy of the nodes (default best-effort "+
		"without --config)")
	f.StringVar(&o.scope, "topology-manager-scope", "", "scope of the nodes, container or pod")
	f.StringVar(&o.File, "config", "", "KubeletConfiguration of the nodes, for what places pods "+
		"(default: static CPUs of which one is the system's)")
	f.IntVar(&o.Pace, "pace", 20, "how many nodes begin in a second")
	f.IntVar(&o.Requests, "requests", 500, "how many requests a second all nodes may send "+
		"together, besides heartbeats")
	f.BoolVar(&o.cleanup, "cleanup", false, "delete the nodes from the cluster at the end")
	f.BoolVar(&o.log, "log", false, "write the nodes' log to standard error, and not only errors")
	return cmd
}

// read builds the hollow nodes' configuration from the flags.
func (o *nodesOptions) read() error {
	if o.Kubeconfig == "" || len(o.machines) == 0 {
		return errors.New("nodes need --kubeconfig and --machine; numalet nodes --help has an example")
	}
	for flag, n := range map[string]int{"pace": o.Pace, "requests": o.Requests} {
		if n < 1 || n > 100_000 {
			return fmt.Errorf("--%s=%d: give a number from 1 to 100000", flag, n)
		}
	}
	for _, text := range o.machines {
		m, err := hollow.ParseMachines(text)
		if err != nil {
			return fmt.Errorf("--machine: %w", err)
		}
		o.Machines = append(o.Machines, m)
	}
	for _, text := range o.devices {
		d, err := hollow.ParseInvented(text)
		if err != nil {
			return fmt.Errorf("--device: %w", err)
		}
		o.Devices = append(o.Devices, d)
	}
	for _, text := range o.taints {
		t, err := parseTaint(text)
		if err != nil {
			return err
		}
		o.Taints = append(o.Taints, t)
	}
	o.Settings = o.settings()
	if o.Root != "" {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return fmt.Errorf("find a root directory: %w; give --root-dir", err)
	}
	o.Root = filepath.Join(cache, "numalet", "nodes")
	return nil
}

// settings returns fields of the nodes' KubeletConfiguration.
func (o *nodesOptions) settings() map[string]any {
	out := map[string]any{}
	if o.File == "" {
		out["cpuManagerPolicy"], out["topologyManagerPolicy"] = "static", "best-effort"
		out["systemReserved"] = map[string]string{"cpu": "1"}
	}
	if o.policy != "" {
		out["topologyManagerPolicy"] = o.policy
	}
	if o.scope != "" {
		out["topologyManagerScope"] = o.scope
	}
	return out
}

// parseTaint reads "dedicated=hollow:NoSchedule".
func parseTaint(text string) (v1.Taint, error) {
	rest, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(rest, "=")
	t := v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)}
	switch t.Effect {
	case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
		if key != "" {
			return t, nil
		}
	}
	return t, fmt.Errorf("--taint %q: write KEY=VALUE:EFFECT with the effect NoSchedule, "+
		"PreferNoSchedule or NoExecute", text)
}

// removeWait bounds how long the deletion of all nodes may take.
const removeWait = 2 * time.Minute

// run makes the nodes, runs them until ctx ends, and removes them if --cleanup is set.
func (o *nodesOptions) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	if !o.log {
		klog.LogToStderr(false) // klog still writes errors to stderr
		klog.SetOutput(io.Discard)
	}
	leave, err := locks.TakeRoot(ctx, o.Root)
	if err != nil {
		return cli.UnlessStopped(ctx, err)
	}
	defer leave()
	nodes, err := hollow.New(ctx, o.Config)
	if err != nil {
		return err
	}
	telling, stop := context.WithCancel(ctx)
	var teller sync.WaitGroup
	teller.Go(func() { tellNodes(telling, cmd, nodes) })
	err = nodes.Run(ctx)
	stop()
	teller.Wait()
	if !o.cleanup {
		return err
	}
	removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
	defer cancel()
	return errors.Join(err, nodes.Remove(removing))
}

// tellPeriod is the time between two lines of tellNodes.
const tellPeriod = 10 * time.Second

// tellNodes prints a line about all nodes every tellPeriod, until ctx ends.
func tellNodes(ctx context.Context, cmd *cobra.Command, nodes *hollow.Nodes) {
	tick := time.NewTicker(tellPeriod)
	defer tick.Stop()
	for before := sentRequests(); ; {
		if !await.On(ctx, tick.C) {
			return
		}
		c, now := nodes.Counts(), sentRequests()
		fmt.Fprintf(cmd.OutOrStdout(), "%d of %d nodes ready; pods: %d running, %d pending, "+
			"%d succeeded, %d failed; %.0f requests a minute\n", c.Ready, c.Nodes, c.Pods[v1.PodRunning],
			c.Pods[v1.PodPending], c.Pods[v1.PodSucceeded], c.Pods[v1.PodFailed],
			(now-before)*float64(time.Minute/tellPeriod))
		before = now
	}
}

// sentRequests returns how many requests this process has sent to the API server.
func sentRequests() (sum float64) {
	all, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return 0
	}
	for _, family := range all {
		if family.GetName() == "rest_client_requests_total" {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
