package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent"
	"github.com/numalet/numalet/agent/node/config"

	"github.com/numalet/numalet/agent/node/locks"

	"github.com/numalet/numalet/cmd/internal/cli"
)

func newAgentCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "numalet",
		Short: "A kubelet-compatible node agent whose first job is hardware with a topology",
		Long: `numalet runs pods where their hardware is: it hands out CPUs, memory and devices by
NUMA node, and says why when it cannot. It takes the kubelet's flags, configuration
file, sockets and files on disk.

With --kubeconfig it is a node of a cluster. Without, it is standalone: pods come from
--pod-manifest-path (staticPodPath) and --manifest-url (staticPodURL). To see it at work
without root or a cluster:

  numalet playground`,
		SilenceUsage: true, SilenceErrors: true,
	}
	flags := config.AddFlags(cmd.Flags())
	cmd.SetUsageFunc(usage(cmd, flags))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if printed, err := flags.PrintVersion(cmd.OutOrStdout(), program()); printed || err != nil {
			return err
		}
		if cmd.Flags().NFlag() == 0 { // the user only wants to know what this program is
			return cmd.Help()
		}
		cfg, err := config.Load(cmd.Flags(), flags)
		if err != nil {
			return err
		}
		return runAgent(cmd.Context(), cfg)
	}
	return cmd
}

// program returns the name that --version prints. Called as "kubelet", it is the kubelet's own
// answer, which kubeadm reads.
func program() string {
	if filepath.Base(os.Args[0]) == "kubelet" {
		return "Kubernetes"
	}
	return "numalet"
}

// runAgent runs the agent in a process of its own.
func runAgent(ctx context.Context, cfg *config.Config) error {
	if err := cfg.ApplyLogging(); err != nil {
		return err
	}
	defer klog.Flush()
	cfg.ApplyMetrics()
	watched, release, err := locks.Take(ctx, cfg.Lock.Path, cfg.Lock.ExitOnContention)
	if err != nil {
		return cli.UnlessStopped(ctx, err)
	}
	defer release()
	leave, err := locks.TakeRoot(watched, cfg.RootDir)
	if err != nil {
		return cli.UnlessStopped(watched, err)
	}
	defer leave()
	log := klog.FromContext(ctx)
	if text, err := cfg.YAML(); err == nil { // what no agent uses is not logged
		log.Info("Effective KubeletConfiguration", "flags", cfg.Given(), "yaml", text)
	}
	tuneProcess(log, cfg)
	a, err := agent.New(watched, cfg)
	if err != nil {
		return cli.UnlessStopped(watched, err)
	}
	return a.Run(watched)
}

// tuneProcess sets the process's limits. If the host refuses, it logs that and goes on.
func tuneProcess(log klog.Logger, cfg *config.Config) {
	if files, err := raiseFiles(uint64(cfg.Kubelet.MaxOpenFiles)); err != nil {
		log.Info("The agent has fewer file descriptors than maxOpenFiles", "has", files, "err", err)
	}
	adj := strconv.Itoa(int(*cfg.Kubelet.OOMScoreAdj))
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(adj), 0); err != nil {
		log.V(1).Info("oomScoreAdj was not set", "want", adj, "err", err)
	}
}

// raiseFiles sets the limit of file descriptors to want. If that is refused, it raises the limit as
// far as allowed and returns the error of the refusal. In any case it returns the limit that holds
// now.
func raiseFiles(want uint64) (uint64, error) {
	refused := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: want})
	if refused == nil {
		return want, nil
	}
	var has unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &has); err != nil {
		return 0, errors.Join(refused, err)
	}
	if has.Cur = min(has.Max, want); unix.Setrlimit(unix.RLIMIT_NOFILE, &has) != nil {
		return 0, refused
	}
	return has.Cur, refused
}
