package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/numalet/numalet/internal/await"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// eventsFlags holds the flags of "numalet events".
type eventsFlags struct {
	namespace, format string
	watch             bool
	server            agentAddress
}

// newEventsCommand returns "numalet events".
func newEventsCommand() *cobra.Command {
	f := eventsFlags{server: thisHost()}
	cmd := &cobra.Command{
		Use:   "events [[NAMESPACE/]POD]",
		Short: "List what happened to pods and to the node",
		Long: `List the events that a running agent remembers, about pods and about the node, the
oldest first: at most 1000, and those that are alike are one.`,
		Example: "  numalet events\n  numalet events app-node1 --watch\n  numalet events team-a/app-node1",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pod := strings.Join(args, "")
			if namespace, name, both := strings.Cut(pod, "/"); both {
				if f.namespace != "" && f.namespace != namespace {
					return fmt.Errorf("%s is not in --namespace %s: leave one of the two out", pod,
						f.namespace)
				}
				f.namespace, pod = namespace, name
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), pod)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.namespace, "namespace", "n", "", "only pods of this namespace")
	flags.BoolVarP(&f.watch, "watch", "w", false, "go on with what comes")
	cli.Choose(flags, &f.format, "output", "o", "how to print", "text", "json")
	f.server.add(flags, "the agent's read-only port")
	return cmd
}

// run prints events. A watch goes on over a restart of the agent, and prints once why it does not answer.
func (f *eventsFlags) run(ctx context.Context, out, problems io.Writer, pod string) error {
	counts := map[string]int32{} // as printed
	answered, said := false, ""
	for ; ; await.For(ctx, time.Second) {
		var all, news v1.EventList
		err := f.server.get(ctx, &all, "events")
		switch {
		case f.watch && ctx.Err() != nil:
			return nil
		case err == nil:
			answered, said = true, ""
		case !f.watch || !answered:
			return err
		case said != err.Error():
			said = err.Error()
			fmt.Fprintf(problems, "numalet: %s; the watch goes on once it answers\n", said)
		}
		news.TypeMeta = all.TypeMeta
		for _, e := range all.Items {
			if f.wants(e, pod) && counts[e.Name] != e.Count {
				counts[e.Name] = e.Count
				news.Items = append(news.Items, e)
			}
		}
		if err := f.print(out, news, pod); err != nil || !f.watch {
			return err
		}
	}
}

func (f *eventsFlags) wants(e v1.Event, pod string) bool {
	of := e.InvolvedObject
	return (pod == "" || of.Kind == "Pod" && of.Name == pod) &&
		(f.namespace == "" || of.Kind == "Pod" && of.Namespace == f.namespace)
}

func (f *eventsFlags) print(out io.Writer, list v1.EventList, pod string) error {
	if f.format == "json" {
		return cli.WriteJSON(out, list)
	}
	if len(list.Items) == 0 {
		if f.watch {
			return nil // events may still come
		}
		_, err := fmt.Fprintln(out, f.none(pod))
		return err
	}
	rows := newRows(out)
	if !f.watch {
		rows.add("AGO", "TYPE", "REASON", "OBJECT", "MESSAGE")
	}
	for _, e := range list.Items {
		when := e.LastTimestamp.Format(time.TimeOnly)
		if !f.watch {
			when = duration.HumanDuration(time.Since(e.LastTimestamp.Time))
		}
		rows.add(when, e.Type, e.Reason, object(e), times(e)+e.Message)
	}
	return rows.Flush()
}

// none says that there are no events of the pod, namespace or node that the user asked for.
func (f *eventsFlags) none(pod string) string {
	switch {
	case pod != "":
		return "No events of a pod " + strings.TrimPrefix(f.namespace+"/", "/") + pod + " are remembered; " +
			"the pod of a manifest file has the node's name in its name: app-NODE."
	case f.namespace != "":
		return "No events of pods in the namespace " + f.namespace + " are remembered."
	default:
		return "No events are remembered."
	}
}

func object(e v1.Event) string {
	of := e.InvolvedObject
	if of.Kind == "Pod" && of.Namespace != v1.NamespaceDefault {
		return "pod/" + of.Namespace + "/" + of.Name
	}
	return strings.ToLower(of.Kind) + "/" + of.Name
}

// times says how often an event occurred, if more than once.
func times(e v1.Event) string {
	if e.Count < 2 {
		return ""
	}
	return fmt.Sprintf("(%d times) ", e.Count)
}
