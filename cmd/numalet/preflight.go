package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/internal/terminal"

	"github.com/numalet/numalet/cmd/internal/cli"
	"github.com/numalet/numalet/cmd/numalet/preflight"
)

// newPreflightCommand returns "numalet preflight".
func newPreflightCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Say what would change if numalet took over the node that a kubelet runs",
		Long: `Look at the node that a kubelet runs, before numalet takes its place: what becomes of
each setting, whether runtime, cgroups and versions fit, which pods would wait or
change, and which plugins and drivers there are. Nothing on the node is changed.

The flags are those of the kubelet that runs, or else those that kubeadm has left, or
those that are given here: the agent's.

The exit code is 0 if the node is ready, 1 if something blocks or a pod would change,
2 if there is no answer.`,
		Example: "  sudo numalet preflight\n" +
			"  numalet preflight --config /var/lib/kubelet/config.yaml --kubeconfig /etc/kubernetes/kubelet.conf\n" +
			"  sudo numalet preflight -o json",
	}
	var format string
	agentFlags := config.AddFlags(cmd.Flags())
	var own []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		own = append(own, flag.Name)
		shown := flag.Name == "config" || flag.Name == "config-dir" || flag.Name == "kubeconfig" ||
			flag.Name == "root-dir"
		flag.Hidden, flag.Deprecated = flag.Hidden || !shown, ""
	})
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	answers(cmd, "not ready", func(cmd *cobra.Command) (bool, error) {
		question, err := preflightQuestion()
		if slices.ContainsFunc(own, cmd.Flags().Changed) {
			question.From, question.Load = "this command", func() (*config.Config, error) {
				return config.Load(cmd.Flags(), agentFlags)
			}
		} else if err != nil {
			return false, err
		}
		report := preflight.Look(cmd.Context(), question)
		report.CommandLine = slices.DeleteFunc(report.CommandLine,
			func(word string) bool { return strings.HasPrefix(word, "--output=") })
		if format == "json" {
			return report.Ready, cli.WriteJSON(cmd.OutOrStdout(), report)
		}
		out := cmd.OutOrStdout()
		_, err = io.WriteString(out, terminal.Wrap(report.Text(), cli.Width(out)))
		return report.Ready, err
	})
	return cmd
}

// preflightQuestion asks with the flags of the kubelet that runs, or those that kubeadm has left.
func preflightQuestion() (preflight.Question, error) {
	q := preflight.Question{Cgroups: "/sys/fs/cgroup"}
	kubelet, err := preflight.FindKubelet("/proc")
	if err != nil {
		return q, fmt.Errorf("%w: give the flags of the node's, such as --config", err)
	}
	args := []string(nil)
	if q.Kubelet = kubelet; kubelet != nil {
		args, q.From = kubelet.Args, "the kubelet that runs"
	} else if args, err = preflight.Kubeadm().Args(); err != nil {
		return q, err
	} else if args == nil {
		return q, errors.New("no kubelet runs, and kubeadm has left no files: give the agent's flags, such as " +
			"--config and --kubeconfig")
	} else {
		q.From = "the files of kubeadm"
	}
	q.Load = func() (*config.Config, error) { return preflight.Load(args) }
	return q, nil
}
