package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/terminal"

	"github.com/numalet/numalet/cmd/internal/cli"
	"github.com/numalet/numalet/internal/complaint"
)

// explainFlags holds the flags of "numalet explain".
type explainFlags struct {
	namespace, format string
	server            agentAddress
}

// newExplainCommand returns "numalet explain POD".
func newExplainCommand() *cobra.Command {
	f := explainFlags{server: thisHost()}
	cmd := &cobra.Command{
		Use:   "explain [[NAMESPACE/]POD]",
		Short: "Say why a pod was admitted, waits or was rejected, or what is wrong with the node",
		Long: `Ask a running agent about its last decision on a pod: what the pod asks for, what
was free on each NUMA node, where each resource could have been had, what is in
the way and what would fit; of containers that end, how, and the last lines of
their logs if this host has them. The pod of a manifest file has the node's name in
its name: app-NODE.

Without a pod, or with the name of the node: what the node is short of, since when,
what was removed or evicted for that, which pod is next and why; and what manifests,
plugins, drivers and volumes need somebody to look at.`,
		Example: "  numalet explain app-node1\n  numalet explain team-a/app-node1 -o json\n" +
			"  numalet explain --node node1 --kubeconfig ~/.kube/config",
		Args: atMostOnePod,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return f.explainNode(cmd, "")
			}
			namespace, pod, err := f.pod(cmd, args[0])
			if err != nil {
				return err
			}
			var record explain.Record
			err = f.server.get(cmd.Context(), &record, "debug", "admission", namespace, pod)
			if err != nil {
				if f.explainNode(cmd, args[0]) == nil {
					return nil
				}
				return err
			}
			out := cmd.OutOrStdout()
			if f.format == "json" {
				return cli.WriteJSON(out, record)
			}
			_, err = io.WriteString(out, terminal.Wrap(record.Text(), cli.Width(out))+
				lastLines(record.Remarks.Logs))
			return err
		},
		ValidArgsFunction: cli.Listed(1, f.pods),
	}
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", v1.NamespaceDefault,
		"the pod's namespace")
	cli.Choose(cmd.Flags(), &f.format, "output", "o", "how to print", "text", "json")
	f.server.add(cmd.Flags(), "the agent's read-only port")
	return cmd
}

// nodeExplanation has a node's shortages and its problems, those of /problems.
type nodeExplanation struct {
	eviction.Explanation
	Problems []complaint.Problem `json:"problems,omitempty"`
}

// explainNode says what is wrong with the node. If only is not empty it must be the node's name.
func (f *explainFlags) explainNode(cmd *cobra.Command, only string) error {
	var e nodeExplanation
	if err := f.server.get(cmd.Context(), &e.Explanation, "debug", "shortage"); err != nil {
		return err
	}
	if only != "" && only != e.Node {
		return fmt.Errorf("the agent's node is %s", e.Node)
	}
	if err := f.server.get(cmd.Context(), &e.Problems, "problems"); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if f.format == "json" {
		return cli.WriteJSON(out, e)
	}
	_, err := io.WriteString(out, terminal.Wrap(e.Text()+problemsText(e.Problems), cli.Width(out)))
	return err
}

// listedProblems is how many problems of a node are printed.
const listedProblems = 20

func problemsText(all []complaint.Problem) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nProblems\n")
	for _, p := range all[:min(len(all), listedProblems)] {
		fmt.Fprintf(&b, "  %s %s: %s: %s\n", p.Source, p.Name, p.Reason, p.Message)
	}
	if more := len(all) - listedProblems; more > 0 {
		fmt.Fprintf(&b, "  and %d more, at /problems of the read-only port\n", more)
	}
	return b.String()
}

const (
	// lastOfLog is the number of log lines that are shown, tailOfLog the number of bytes that are
	// read.
	lastOfLog, tailOfLog = 5, 16 << 10
)

// lastLines returns the last log lines of containers that ended. It reads the files of this host,
// because an agent does not hand out logs to everyone who may ask it.
func lastLines(logs []explain.Log) string {
	var b strings.Builder
	for _, log := range logs {
		lines, err := tail(log.Path)
		switch {
		case err != nil:
			fmt.Fprintf(&b, "\nThe log of container %s is not read here: %v\n", log.Container, err)
		case len(lines) == 0:
			fmt.Fprintf(&b, "\nContainer %s has written nothing\n", log.Container)
		default:
			fmt.Fprintf(&b, "\nThe last that container %s has written\n", log.Container)
		}
		for _, line := range lines {
			fmt.Fprintf(&b, "  %s\n", line)
		}
	}
	return b.String()
}

// tail reads the last lines of a container's log and strips the time, stream and tag before each.
func tail(path string) ([]string, error) {
	f, err := files.Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	begin := max(0, info.Size()-tailOfLog)
	raw, err := io.ReadAll(io.NewSectionReader(f, begin, tailOfLog))
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		if parts := strings.SplitN(line, " ", 4); len(parts) == 4 {
			out = append(out, oneline.Of(strings.TrimRight(parts[3], "\r\n")))
		}
	}
	return out[max(0, len(out)-lastOfLog):], nil
}

// atMostOnePod checks that there is at most one argument.
func atMostOnePod(_ *cobra.Command, args []string) error {
	if len(args) <= 1 {
		return nil
	}
	return fmt.Errorf("%d pods are named: name one, such as numalet explain app-node1; the "+
		"agent's /pods lists them", len(args))
}

// pod splits the argument into namespace and name; the namespace is optional.
func (f *explainFlags) pod(cmd *cobra.Command, arg string) (namespace, name string, err error) {
	namespace, name, both := strings.Cut(arg, "/")
	switch {
	case !both:
		return f.namespace, arg, nil
	case cmd.Flags().Changed("namespace") && namespace != f.namespace:
		return "", "", fmt.Errorf("%s is not in --namespace %s: leave one of the two out", arg,
			f.namespace)
	}
	return namespace, name, nil
}

// pods lists the agent's pods, with their namespace if it is not the one of the flag.
func (f *explainFlags) pods(ctx context.Context, _ []string) (names []string, err error) {
	var pods v1.PodList
	err = f.server.get(ctx, &pods, "pods")
	for _, pod := range pods.Items {
		name := pod.Name
		if pod.Namespace != f.namespace {
			name = pod.Namespace + "/" + name
		}
		names = append(names, name)
	}
	return names, err
}
