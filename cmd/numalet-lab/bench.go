package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/cmd/numalet-lab/bench"
	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/internal/terminal"
	"github.com/numalet/numalet/internal/version"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// newRigCommand returns "numalet rig", which measures policies on machines that need not exist.
func newRigCommand() *cobra.Command {
	cmd := newRig("rig")
	cmd.AddCommand(newMixesCommand())
	return cmd
}

// newBenchCommand returns the rig under its former name, "numalet bench topology".
func newBenchCommand() *cobra.Command {
	cmd := cli.Group("bench", cli.LabShort["bench"], newRig("topology"), newMixesCommand())
	cmd.Hidden = true
	return cmd
}

func newRig(name string) *cobra.Command {
	o := bench.Options{}
	cmd := &cobra.Command{
		Use:   name,
		Short: cli.LabShort["rig"],
		Long: `Let a stream of pods come and go on a machine, in virtual time and with the code
the agent decides with, once under each policy. The report says how many were
admitted and why others were not, how many have everything on one NUMA node, how
far apart the others are, how fragmented the machine gets and how long a decision
takes. Nothing is started; no root is needed.

The same machine, workload and seed give the same report; --no-timing leaves out the only part that
differs from run to run.

A set of policies is words joined by +, alternatives are joined by /, sets are separated by commas:
  none, best-effort, restricted, single-numa-node   topology manager policy
  container, pod                                    its scope
  prefer-closest-numa-nodes                         its option
  cpu-static, cpu-none                              CPU manager policy
  memory-static, memory-none                        memory manager policy
  full-pcpus-only, distribute-cpus-across-numa ...  options of the CPU manager

Policies can also come from a node's KubeletConfiguration: --config today=config.yaml, once for each
that is to be compared, and --config-dir today=DIR for drop-ins on top of it. They are read as the
agent reads them; what they reserve is kept from pods, and their maxPods holds.

Ctrl-C ends the run and reports what was measured until then; the exit code is 130.`,
		Example: `  numalet rig --topology-from fixture:playground --mix training
  numalet rig --topology-from machine.tar.gz --mix inference -o html --out report.html
  numalet rig --policies restricted/single-numa-node+pod/container --pods 100000
  numalet rig --topology-from fixture:epyc-nps4 --devices gpu=2 --mix training
  numalet rig --config today=/var/lib/kubelet/config.yaml --config new=new.yaml
  numalet rig --trace trace.jsonl --wait 10m -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := fillIn(&o, cmd.Flags()); err != nil {
				return err
			}
			o.Stdout, o.Stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
			o.Report.Version, o.Report.Command = version.Get().String(), benchCommandLine(cmd, o)
			err := bench.Run(cmd.Context(), o)
			if errors.Is(err, bench.ErrInterrupted) {
				return cli.NewExit(err, exitInterrupted)
			}
			return err
		},
	}
	addBenchFlags(cmd, &o)
	return cmd
}

// fillIn refuses flags that do not go together and sets the defaults that depend on other flags.
func fillIn(o *bench.Options, f *pflag.FlagSet) error {
	for _, other := range []string{"mix", "pods", "seed", "load"} {
		if o.Workload.Trace != "" && f.Changed(other) {
			return fmt.Errorf("--%s and --trace: a trace says itself which pods come; "+
				"leave one out", other)
		}
	}
	ending := strings.TrimPrefix(filepath.Ext(o.Report.Out), ".")
	if !f.Changed("output") && slices.Contains(bench.Formats, ending) {
		o.Report.Format = ending
	}
	if p := &o.Policies; len(p.Configs)+len(p.ConfigDirs) > 0 && !f.Changed("policies") {
		p.Words = ""
	}
	return nil
}

// exitInterrupted is the exit code that shells report for a program that SIGINT ended.
const exitInterrupted = 130

// benchCommandLine returns the command that makes the same report again. Flags that change only how
// the report is made or shown are left out.
func benchCommandLine(cmd *cobra.Command, o bench.Options) string {
	words := []string{cmd.CommandPath()}
	always := []string{"policies"}
	if o.Workload.Trace == "" {
		always = append(always, "mix", "pods", "seed")
	}
	without := []string{
		"decisions", "no-timing", "out", "output", "parallel", "quiet", "write-trace",
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(without, f.Name) || !f.Changed && !slices.Contains(always, f.Name) ||
			f.Name == "policies" && o.Policies.Words == "" {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			words = append(words, "--"+f.Name, terminal.Quoted(value))
		}
	})
	return strings.Join(words, " ")
}

func addBenchFlags(cmd *cobra.Command, o *bench.Options) {
	f := cmd.Flags()
	f.StringVar(&o.Machine, "topology-from", "", "the machine: a ghw snapshot (.tar.gz or "+
		"unpacked), a machine file in YAML, or fixture:NAME; empty is this machine")
	f.StringArrayVar(&o.Site.Devices, "devices", nil,
		"devices beside those of the machine's PCI bus: gpu=2 (on each node), "+
			"example.com/fpga=1@0-1 (on these nodes), example.com/roce=nic (a kind of "+
			"PCI device under another name); repeat for more")
	f.StringVar(&o.Site.ReservedCPUs, "reserved-cpus", "",
		"CPUs that no pod gets, like 0-1,32 (one core)")
	f.StringVar(&o.Site.IsolatedCPUs, "isolated-cpus", "none",
		"CPUs that only pods get that ask for them by an annotation: auto (those of isolcpus=), a "+
			"list like 2-7, or none")
	f.Int64Var(&o.Site.MaxPods, "max-pods", 0, "most pods at a time; 0 is no limit")
	f.StringVar(&o.Policies.Words, "policies", rig.DefaultPolicies, "what to compare, see above")
	f.StringArrayVar(&o.Policies.Configs, "config", nil,
		"a KubeletConfiguration to compare, as NAME=FILE; repeat for more; without --policies "+
			"nothing else is compared")
	f.StringArrayVar(&o.Policies.ConfigDirs, "config-dir", nil,
		"drop-ins (*.conf) on top of the --config of this name, as NAME=DIR; repeat for more")
	f.StringVar(&o.Workload.Mix, "mix", "cpu-only", "the workload: a file, or one of "+
		strings.Join(rig.MixNames(), ", ")+"; see numalet rig mixes")
	f.IntVar(&o.Workload.Draw.Pods, "pods", 10000, "pods that arrive")
	f.Uint64Var(&o.Workload.Draw.Seed, "seed", 1, "what chance starts from")
	f.Float64Var(&o.Workload.Draw.Load, "load", 0,
		"how much the pods ask for at any time, as a part of what the machine has: 0.9 is nearly "+
			"full, 2 is twice as much as there is; 0 is what the mix says")
	f.StringVar(&o.Workload.Trace, "trace", "",
		"replay arrivals and departures from this file instead (JSON lines or CSV, see "+
			"docs/rig.md)")
	f.StringVar(&o.Workload.WriteTrace, "write-trace", "",
		"write the stream of pods to this file, for --trace")
	f.StringVar(&o.Decisions, "decisions", "", "write every decision to this file, as JSON lines")
	f.DurationVar(&o.Wait, "wait", 0,
		"how long a pod without a place is tried again whenever another leaves, in virtual time; "+
			"0 rejects it at once")
	cli.Choose(f, &o.Report.Format, "output", "o", "how to print", bench.Formats...)
	f.StringVar(&o.Report.Out, "out", "",
		"write the report to this file instead of stdout, as its ending says: .html, .json")
	f.IntVar(&o.Parallel, "parallel", runtime.NumCPU(),
		"policies that run at the same time; 1 disturbs the measured times least")
	f.BoolVar(&o.Report.NoTiming, "no-timing", false, "leave out how long decisions took")
	f.BoolVar(&o.Quiet, "quiet", false, "no progress on stderr; there is none either when "+
		"stderr is no terminal")
}

func newMixesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "mixes [NAME]",
		Short: "List the workloads that are built in, or print one to start your own from",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				raw, err := rig.MixText(args[0])
				if err == nil {
					_, err = cmd.OutOrStdout().Write(raw)
				}
				return err
			}
			for _, name := range rig.MixNames() {
				mix, err := rig.OpenMix(name)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%-16s %s\n", name, mix.About)
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}
