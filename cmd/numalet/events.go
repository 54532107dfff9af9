package main

import (
	"context"
	"fmt"
	"io"
	"slices"
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
	podFlags
	format string
	watch  bool
	server asked
}

// newEventsCommand returns "numalet events".
func newEventsCommand() *cobra.Command {
	f := eventsFlags{}
	cmd := &cobra.Command{
		Use:   "events [[NAMESPACE/]POD[/CONTAINER]]",
		Short: "List what happened to pods and to the node",
		Long: `List the events that a running agent remembers, about pods and about the node, the
oldest first: at most 1000, and those that are alike are one. A static pod is also found
by the name on its manifest.`,
		Example: "  numalet events\n  numalet events app --watch\n  numalet events team-a/app/main",
		Args:    oneWord("pods", "app"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var wanted []podName // nil: all
			if len(args) > 0 {
				var err error
				if wanted, err = f.readings(args[0]); err != nil {
					return err
				}
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), wanted)
		},
	}
	flags := cmd.Flags()
	f.add(flags)
	flags.BoolVarP(&f.watch, "watch", "w", false, "go on with what comes")
	cli.Choose(flags, &f.format, "output", "o", "how to print", "text", "json")
	f.server.Add(flags)
	cmd.ValidArgsFunction = f.server.completePods(&f.podFlags)
	return cmd
}

// run prints events. A watch goes on over a restart of the agent, and prints once why it does not answer.
func (f *eventsFlags) run(ctx context.Context, out, problems io.Writer, wanted []podName) error {
	counts := map[string]int32{} // as printed
	answered, said := false, ""
	for ; ; await.For(ctx, time.Second) {
		var all, news v1.EventList
		err := f.server.Get(ctx, &all, "events")
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
			if f.wants(e, wanted) && counts[e.Name] != e.Count {
				counts[e.Name] = e.Count
				news.Items = append(news.Items, e)
			}
		}
		if err := f.print(out, news, wanted); err != nil || !f.watch {
			return err
		}
	}
}

// wants reports whether an event is of one of the pods, or without pods of the namespace and container that flags name.
func (f *eventsFlags) wants(e v1.Event, pods []podName) bool {
	of := e.InvolvedObject
	if pods == nil {
		return (f.namespace == "" || of.Kind == "Pod" && of.Namespace == f.namespace) && inContainer(of, f.container)
	}
	return slices.ContainsFunc(pods, func(n podName) bool { return isOf(e, n) && inContainer(of, n.container) })
}

// isOf reports whether an event is of the pod of that name, or of the static pod of the manifest of that name.
func isOf(e v1.Event, n podName) bool {
	of := e.InvolvedObject
	return of.Kind == "Pod" && of.Namespace == n.namespace && (of.Name == n.pod || of.Name == n.pod+"-"+e.Source.Host)
}

// inContainer reports whether an event is of that container; "": of any, or of the pod.
func inContainer(of v1.ObjectReference, name string) bool {
	return name == "" || strings.HasSuffix(of.FieldPath, "{"+name+"}")
}

func (f *eventsFlags) print(out io.Writer, list v1.EventList, wanted []podName) error {
	if f.format == "json" {
		list.Items = append([]v1.Event{}, list.Items...) // an empty list and not null
		return cli.WriteJSON(out, list)
	}
	if len(list.Items) == 0 {
		if f.watch {
			return nil // events may still come
		}
		_, err := fmt.Fprintln(out, f.none(wanted))
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
func (f *eventsFlags) none(wanted []podName) string {
	switch {
	case len(wanted) > 0:
		return "No events of a pod " + wanted[0].String() + " are remembered; numalet pods lists the pods that there are."
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
