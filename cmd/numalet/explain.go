package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/placement/explain"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/internal/terminal"

	"github.com/numalet/numalet/cmd/internal/ask"
	"github.com/numalet/numalet/cmd/internal/cli"
	"github.com/numalet/numalet/internal/complaint"
)

// explainFlags holds the flags of "numalet explain".
type explainFlags struct {
	podFlags
	format string
	server asked
}

// newExplainCommand returns "numalet explain POD".
func newExplainCommand() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain [[NAMESPACE/]POD[/CONTAINER]]",
		Short: "Say why a pod was admitted, waits or was rejected, or what is wrong with the node",
		Long: `Ask a running agent about its last decision on a pod: what the pod asks for, what
was free on each NUMA node, where each resource could have been had, what is in
the way and what would fit; of containers that end, how, and the last lines of
their logs if this host has them. A static pod is also found by the name on its manifest.

Of a pod that the agent does not have it says what is known: that its manifest was
refused, what happened before it was gone, or, of a cluster whose kubeconfig is known,
that no scheduler has bound it, or on which node it is.

Without a pod, or with the name of the node: what the node is short of, since when,
what was removed or evicted for that, which pod is next and why; and what manifests,
plugins, drivers and volumes need somebody to look at.`,
		Example: "  numalet explain app\n  numalet explain team-a/app/main -o json\n" +
			"  numalet explain --node node1 --kubeconfig ~/.kube/config",
		Args: oneWord("pods", "app; numalet pods lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return f.explainNode(cmd, "")
			}
			return f.explainPod(cmd, args[0])
		},
	}
	f.add(cmd.Flags())
	cli.Choose(cmd.Flags(), &f.format, "output", "o", "how to print", "text", "json")
	f.server.Add(cmd.Flags())
	cmd.ValidArgsFunction = f.server.completePods(&f.podFlags)
	return cmd
}

// explainPod explains the pod that an argument names, or the node of that name.
func (f *explainFlags) explainPod(cmd *cobra.Command, arg string) error {
	readings, err := f.readings(arg)
	if err != nil {
		return err
	}
	var unknown error
	for _, n := range readings {
		var record explain.Record
		err := f.server.Get(cmd.Context(), &record, "debug", "admission", n.namespace, n.pod)
		switch {
		case err == nil:
			return f.print(cmd.OutOrStdout(), onlyOf(record, n.container))
		case !ask.Unknown(err):
			return err
		case unknown == nil:
			unknown = err
		}
	}
	if !strings.Contains(arg, "/") && f.namespace == "" && f.explainNode(cmd, arg) == nil {
		return nil
	}
	if f.format == "json" {
		return unknown // there is no decision that could be printed
	}
	known, err := f.server.absent(cmd.Context(), readings)
	if err != nil || known == "" {
		return errors.Join(unknown, err)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), terminal.Wrap(known, cli.Width(cmd.OutOrStdout())))
	return err
}

func (f *explainFlags) print(out io.Writer, record explain.Record) error {
	if f.format == "json" {
		return cli.WriteJSON(out, record)
	}
	_, err := io.WriteString(out, terminal.Wrap(record.Text(), cli.Width(out))+lastLines(record.Remarks.Logs))
	return err
}

// onlyOf leaves of a record what is about one container, and about the pod; an empty name leaves all.
func onlyOf(r explain.Record, container string) explain.Record {
	if container == "" {
		return r
	}
	r.Requests = slices.DeleteFunc(r.Requests, func(q explain.Request) bool {
		return q.Container != "" && q.Container != container
	})
	r.Remarks.Since = slices.DeleteFunc(r.Remarks.Since, func(text string) bool {
		return strings.HasPrefix(text, "Container ") && !strings.HasPrefix(text, "Container "+container+":")
	})
	r.Remarks.Logs = slices.DeleteFunc(r.Remarks.Logs, func(l explain.Log) bool { return l.Container != container })
	return r
}

// nodeExplanation has a node's shortages and its problems, those of /problems.
type nodeExplanation struct {
	eviction.Explanation
	Problems []complaint.Problem `json:"problems"`
}

// explainNode says what is wrong with the node. If only is not empty it must be the node's name.
func (f *explainFlags) explainNode(cmd *cobra.Command, only string) error {
	var e nodeExplanation
	if err := f.server.Get(cmd.Context(), &e.Explanation, "debug", "shortage"); err != nil {
		return err
	}
	if only != "" && only != e.Node {
		return fmt.Errorf("the agent's node is %s", e.Node)
	}
	if err := f.server.Get(cmd.Context(), &e.Problems, "problems"); err != nil {
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
		fmt.Fprintf(&b, "  and %d more, which numalet problems lists\n", more)
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
