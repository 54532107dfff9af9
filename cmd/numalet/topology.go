package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/discover"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// newTopologyCommand returns "numalet topology", which shows machines and captures this one.
func newTopologyCommand() *cobra.Command {
	return cli.Group("topology", "Show what the hardware is, or capture it",
		newTopologyShow(), newTopologySnapshot(), newTopologyFixtures())
}

func newTopologyShow() *cobra.Command {
	var at asked
	var from, format string
	var allPCI bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print sockets, NUMA nodes, caches, memory, PCI devices and distances",
		Long: `Print sockets, NUMA nodes, caches, memory, PCI devices and distances of this
machine or of another one: that of --topology-from, or of the agent that --server, --node,
--root-dir or $NUMALET_SERVER names. What -o yaml and -o json print, --topology-from reads.`,
		Example: "  numalet topology show\n" +
			"  numalet topology show --topology-from fixture:epyc-nps4\n" +
			"  numalet topology show -o yaml > machine.yaml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if from == "" && at.NamedAnyhow() {
				m, err := at.machine(cmd.Context())
				if err != nil {
					return err
				}
				return printMachine(cmd.OutOrStdout(), m, format, allPCI)
			}
			if at.Named() {
				return errors.New("--topology-from names a machine, and another flag an agent: leave one of the two out")
			}
			m, err := discover.Open(from)
			if err != nil {
				return err
			}
			if err := printMachine(cmd.OutOrStdout(), m, format, allPCI); err != nil ||
				format != "text" {
				return err
			}
			return printIsolated(cmd.OutOrStdout(), from)
		},
	}
	cmd.Flags().StringVar(&from, "topology-from", "",
		"the machine to show: a ghw snapshot (.tar.gz or unpacked), a machine file in YAML, or "+
			"fixture:NAME; empty is this machine")
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json", "yaml")
	cmd.Flags().BoolVar(&allPCI, "all-pci", false, "with -o text, show PCI devices of every class")
	at.Add(cmd.Flags())
	return cmd
}

// machine returns the hardware that an agent knows.
func (a *asked) machine(ctx context.Context) (*topology.Machine, error) {
	var raw json.RawMessage
	if err := a.Get(ctx, &raw, "machine"); err != nil {
		return nil, err
	}
	m, err := discover.ParseYAML(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read the agent's answer: %w", err)
	}
	return m, nil
}

func printMachine(w io.Writer, m *topology.Machine, format string, allPCI bool) error {
	switch format {
	case "yaml":
		return discover.WriteYAML(w, m)
	case "json":
		return cli.WriteJSON(w, m.Spec())
	}
	return discover.WriteText(w, m, allPCI)
}

// printIsolated names the CPUs that the kernel isolates, on this machine or on the one whose /sys
// is below the directory.
func printIsolated(w io.Writer, from string) error {
	if info, err := os.Stat(from); from != "" && (err != nil || !info.IsDir()) {
		return nil
	}
	isolated, err := discover.IsolatedCPUs(from)
	if err != nil {
		return err
	}
	for _, of := range []struct{ what, cpus string }{
		{"scheduler (isolcpus)", isolated.Scheduler}, {"timer (nohz_full)", isolated.Ticks},
	} {
		if of.cpus == "" {
			continue
		}
		if _, err := fmt.Fprintf(w,
			"The kernel's %s leaves CPUs %s alone. Pods may get them all the same: keep them for "+
				"those that ask with --isolated-cpus, or from all with reservedSystemCPUs and "+
				"strict-cpu-reservation.\n",
			of.what, of.cpus); err != nil {
			return err
		}
	}
	return nil
}

func newTopologySnapshot() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Capture this machine in a file for --topology-from",
		Long: `Capture CPUs, NUMA nodes, memory and PCI devices of this machine in a ghw
snapshot. It holds no host name, no addresses and no serial numbers.`,
		Example: "  numalet topology snapshot -o machine.tar.gz\n" +
			"  numalet topology show --topology-from machine.tar.gz",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeSnapshot(cmd.Context(), path)
		},
	}
	cmd.Flags().StringVarP(&path, "output", "o", "machine.tar.gz",
		"the file to write; it must not exist yet")
	return cmd
}

// writeSnapshot writes a whole snapshot to path, or leaves no file there.
func writeSnapshot(ctx context.Context, path string) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write snapshot: %w; choose another file with -o", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	return discover.Snapshot(ctx, f, "/")
}

func newTopologyFixtures() *cobra.Command {
	return &cobra.Command{
		Use:   "fixtures",
		Short: "List the built-in machines, for --topology-from fixture:NAME",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range discover.FixtureNames() {
				m, err := discover.Fixture(name)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "fixture:%-16s %s\n", name, m.Name())
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}
