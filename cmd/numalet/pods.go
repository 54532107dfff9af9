package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/topology/podspec"

	"github.com/numalet/numalet/cmd/internal/cli"
)

// newPodsCommand returns "numalet pods".
func newPodsCommand() *cobra.Command {
	var at asked
	var f podFlags
	var format string
	cmd := &cobra.Command{
		Use:   "pods [[NAMESPACE/]POD[/CONTAINER]]",
		Short: "List the pods of an agent, and where their containers are",
		Long: `List the pods of a running agent, a line for each container: the phase of the pod, the
container's restarts, its CPUs and devices, their NUMA nodes, and why it waits or ended.
With -o json the pods are those of the read-only port's /pods.`,
		Example: "  numalet pods\n  numalet pods -n team-a\n  numalet pods app -o json",
		Args:    oneWord("pods", "app"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return at.listPods(cmd.Context(), cmd.OutOrStdout(), f, strings.Join(args, ""), format)
		},
		ValidArgsFunction: at.completePods(&f),
	}
	f.add(cmd.Flags())
	cli.Choose(cmd.Flags(), &format, "output", "o", "how to print", "text", "json")
	at.Add(cmd.Flags())
	return cmd
}

func (a *asked) listPods(ctx context.Context, out io.Writer, f podFlags, arg, format string) error {
	pods, err := a.pods(ctx)
	if err != nil {
		return err
	}
	container := f.container
	if arg != "" {
		pod, named, err := f.find(pods, arg)
		if err != nil {
			return err
		}
		pods, container = []v1.Pod{*pod}, named
	}
	pods = slices.DeleteFunc(pods, func(p v1.Pod) bool { return f.namespace != "" && p.Namespace != f.namespace })
	if format == "json" {
		list := v1.PodList{Items: append([]v1.Pod{}, pods...)}
		list.Kind, list.APIVersion = "PodList", "v1"
		return cli.WriteJSON(out, list)
	}
	var placed []assigned.Row
	if err := a.Get(ctx, &placed, "placements"); err != nil {
		return err
	}
	return printPods(out, pods, placed, container, time.Now())
}

// printPods prints a line for each container, or for those of that name only.
func printPods(out io.Writer, pods []v1.Pod, placed []assigned.Row, container string, now time.Time) error {
	if len(pods) == 0 {
		_, err := fmt.Fprintln(out, "The agent has no such pod.")
		return err
	}
	rows := newRows(out)
	rows.add("POD", "CONTAINER", "PHASE", "RESTARTS", "AGE", "CPUS", "DEVICES", "NUMA", "WHY")
	for i := range pods {
		pod := &pods[i]
		statuses := podspec.ByContainer(&pod.Status)
		for _, r := range placed {
			if r.Namespace != pod.Namespace || r.Pod != pod.Name || container != "" && r.Container != container {
				continue
			}
			age := "-"
			if !pod.CreationTimestamp.IsZero() {
				age = duration.HumanDuration(now.Sub(pod.CreationTimestamp.Time))
			} else if pod.Status.StartTime != nil {
				age = duration.HumanDuration(now.Sub(pod.Status.StartTime.Time))
			}
			why := r.State.Reason
			if r.State.Message != "" {
				why += ": " + r.State.Message
			}
			rows.add(shortPod(pod.Namespace, pod.Name), r.Container, string(r.State.Phase),
				fmt.Sprint(ptr.Deref(statuses[r.Container], v1.ContainerStatus{}).RestartCount), age, cmp.Or(cpusOf(r), "-"),
				cmp.Or(devicesOf(r), "-"), cmp.Or(r.NUMANodes, "-"), cmp.Or(why, "-"))
		}
	}
	return rows.Flush()
}

// shortPod is the pod's name, with its namespace unless that is the default.
func shortPod(namespace, name string) string {
	if namespace == v1.NamespaceDefault {
		return name
	}
	return namespace + "/" + name
}

// cpusOf names the CPUs that a container has exclusively; the shared ones are long and the same for all.
func cpusOf(r assigned.Row) string {
	if r.CPUs != "" && !r.Exclusive {
		return "shared"
	}
	return r.CPUs
}

// devicesOf names the devices of a container as "resource=id,id", with those that are not healthy marked.
func devicesOf(r assigned.Row) string {
	var out []string
	for _, resource := range slices.Sorted(maps.Keys(r.Devices)) {
		var ids []string
		for _, id := range r.Devices[resource] {
			if health := r.DeviceHealth[resource][id]; health != "" {
				id += " (" + strings.ToLower(string(health)) + ")"
			}
			ids = append(ids, id)
		}
		out = append(out, resource+"="+strings.Join(ids, ","))
	}
	return strings.Join(out, " ")
}
