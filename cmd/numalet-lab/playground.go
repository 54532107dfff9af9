package main

import (
	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/numalet-lab/playground"

	"github.com/numalet/numalet/cmd/internal/cli"
)

func newPlaygroundCommand() *cobra.Command {
	opts := playground.Options{}
	var output string
	cmd := &cobra.Command{
		Use:   "playground",
		Short: cli.LabShort["playground"],
		Long: `Start the agent with everything around it in a temporary directory: a simulated
machine of 2 sockets and 4 NUMA nodes, a container runtime in memory, device
plugins in processes of their own, and example pods. No root and no cluster are
needed, and nothing is left behind.

With --runtime=containerd (root) the pods are real containers on this machine. With
--cluster the agent is a node of a control plane of its own, and kubectl works.`,
		Example: `  numalet playground
  numalet playground --once -o json
  numalet playground --topology-from fixture:eight-node
  numalet playground --gpu dgxh100
  numalet playground --config thresholds.yaml
  numalet playground --plugin './widgets --dir {dir}'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.JSON, opts.Out = output == "json", cmd.OutOrStdout()
			return playground.Run(cmd.Context(), opts)
		},
	}
	f := cmd.Flags()
	cli.Choose(f, &opts.Runtime, "runtime", "", "container runtime", playground.Simulated,
		playground.Containerd)
	f.StringVar(&opts.Machine, "topology-from", "",
		"machine to play on: a snapshot, a YAML file or fixture:NAME (a machine with 4 NUMA nodes)")
	f.StringVar(&opts.Examples, "examples", "",
		`folder of manifests to begin with, or "none" (our examples)`)
	f.StringVar(&opts.Tools, "tools", "",
		"folder of containerd's binaries (what test/tools/build.sh built)")
	f.StringVar(&opts.Cluster, "cluster", "",
		"folder of etcd, the API server and so on (what test/tools/build.sh cluster built)")
	f.StringVar(&opts.GPU, "gpu", "",
		"play on a machine of numalet-gpu, such as dgxh100, whose GPUs that plugin offers")
	f.BoolVar(&opts.DRA, "dra", false,
		"with --cluster and --gpu: hand out the GPUs by resource claim")
	f.StringVar(&opts.Plugin, "plugin", "",
		"play with the device plugin that this command starts, and show its calls and answers; {dir} stands "+
			"for the device plugin directory, {registry} for plugins_registry, {root} for the root directory")
	f.StringVar(&opts.Driver, "driver", "",
		"with --cluster: the same with a driver of resource claims; also {data} for the directory of its "+
			"own socket, {kubeconfig} and {node}")
	f.StringVar(&opts.Config, "config", "",
		"file with a KubeletConfiguration, for thresholds and policies of your own in place of the "+
			"playground's")
	f.BoolVar(&opts.Once, "once", false, "print the table when every pod has settled, and end")
	cli.Choose(f, &output, "output", "o", "how to print: with --once the table, else each change as a line", "text", "json")
	cmd.AddCommand(newPlaygroundCtlCommand())
	return cmd
}
