package main

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/numalet/numalet/cmd/internal/ask"
)

// logsFlags holds the flags of "numalet logs".
type logsFlags struct {
	podFlags
	at                           asked
	follow, previous, timestamps bool
	tail                         int64
	since                        time.Duration
}

// newLogsCommand returns "numalet logs".
func newLogsCommand() *cobra.Command {
	var f logsFlags
	cmd := &cobra.Command{
		Use:   "logs [NAMESPACE/]POD[/CONTAINER]",
		Short: "Print what a container of a pod has written",
		Long: `Print what a container of a pod of a running agent has written. Without a container it is
the only one of the pod, or the first beside its sidecars.

The agent is asked through its socket, or through the API server: its read-only port
has no logs.`,
		Example: "  numalet logs app\n  numalet logs team-a/app/main --follow --tail 10\n" +
			"  numalet logs app -c main --previous --node node1",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("name a pod, such as numalet logs app; numalet pods lists those that there are")
			}
			return oneWord("pods", "app")(cmd, args)
		},
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
		ValidArgsFunction: f.at.completePods(&f.podFlags),
	}
	flags := cmd.Flags()
	f.podFlags.add(flags)
	flags.BoolVarP(&f.follow, "follow", "f", false, "go on with what comes")
	flags.BoolVarP(&f.previous, "previous", "p", false, "of the container before its last restart")
	flags.BoolVar(&f.timestamps, "timestamps", false, "print when each line was written")
	flags.Int64Var(&f.tail, "tail", -1, "how many of the last lines; -1: all")
	flags.DurationVar(&f.since, "since", 0, "only what is younger than this, such as 10m")
	f.at.Add(flags)
	return cmd
}

func (f *logsFlags) run(cmd *cobra.Command, arg string) error {
	pods, err := f.at.pods(cmd.Context())
	if err != nil {
		return err
	}
	pod, container, err := f.find(pods, arg)
	if err != nil {
		return err
	}
	if container == "" {
		container = pod.Spec.Containers[0].Name
		if len(pod.Spec.Containers) > 1 {
			fmt.Fprintf(cmd.ErrOrStderr(), "numalet: container %s of %s\n", container,
				strings.Join(containersOf(pod), ", "))
		}
	}
	body, err := f.at.Open(cmd.Context(), ask.Question{
		Path: []string{"containerLogs", pod.Namespace, pod.Name, container}, Query: f.query(),
	})
	if err != nil {
		return err
	}
	defer body.Close()
	_, err = io.Copy(cmd.OutOrStdout(), body)
	if cmd.Context().Err() != nil {
		return nil // the user ended it
	}
	return err
}

func (f *logsFlags) query() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{
		"follow": f.follow, "previous": f.previous, "timestamps": f.timestamps,
	} {
		if on {
			q.Set(name, "true")
		}
	}
	if f.tail >= 0 {
		q.Set("tailLines", strconv.FormatInt(f.tail, 10))
	}
	if f.since > 0 {
		q.Set("sinceSeconds", strconv.FormatInt(max(1, int64(f.since/time.Second)), 10))
	}
	return q
}
