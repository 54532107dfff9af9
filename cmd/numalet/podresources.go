package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/resource"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/internal/await"

	"github.com/numalet/numalet/cmd/internal/ask"
	"github.com/numalet/numalet/cmd/internal/cli"
)

const (
	podResourcesTimeout = 10 * time.Second
	// rewatchDelay is the pause before an ended watch is opened again.
	rewatchDelay = time.Second
)

// podResourcesFlags holds the flags of "numalet podresources".
type podResourcesFlags struct {
	podFlags
	socket, resource, output string
	allocatable, watch       bool
	agent                    asked
	only                     string // the pod that an argument names; "": all
}

// newPodResourcesCommand returns "numalet podresources".
func newPodResourcesCommand() *cobra.Command {
	f := &podResourcesFlags{}
	cmd := &cobra.Command{
		Use:   "podresources [[NAMESPACE/]POD[/CONTAINER]]",
		Short: "Print which CPUs, memory and devices the pods of the node hold",
		Long: `Ask the pod resources socket which CPUs of their own, memory and devices the
containers of the node's active pods hold, each device with its NUMA nodes.
With --socket the kubelet's API is used, so that it works on nodes of the kubelet too.`,
		Example: "  numalet podresources\n  numalet podresources --allocatable -o json\n" +
			"  numalet podresources --watch --resource nvidia.com/gpu\n" +
			"  numalet podresources app --node node1",
		Args: oneWord("pods", "app"),
		RunE: func(cmd *cobra.Command, args []string) error {
			f.only = strings.Join(args, "")
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.socket, "socket", "",
		"ask this pod resources socket, a kubelet's too (pod-resources/kubelet.sock below the root directory)")
	flags.BoolVarP(&f.watch, "watch", "w", false,
		"print the state, then each change; goes on by itself when the agent restarts")
	flags.BoolVar(&f.allocatable, "allocatable", false,
		"print what containers can get instead; with --watch, print it too")
	f.podFlags.add(flags)
	flags.StringVar(&f.resource, "resource", "",
		"with --watch: only pods that hold this resource (cpu for CPUs of their own)")
	f.agent.Add(flags)
	cli.Choose(flags, &f.output, "output", "o", "how to print", "table", "json")
	for _, name := range ask.Flags() {
		cmd.MarkFlagsMutuallyExclusive("socket", name)
	}
	return cmd
}

func (f *podResourcesFlags) run(ctx context.Context, out, problems io.Writer) error {
	switch {
	case !f.watch && f.resource != "":
		return errors.New("--resource needs --watch: the kubelet's API tells all pods")
	case f.watch && (f.only != "" || f.container != ""):
		return errors.New("--watch follows all pods, or those of --namespace and --resource: leave the pod out")
	case f.allocatable && (f.only != "" || f.container != ""):
		return errors.New("--allocatable is about the node: leave the pod out")
	}
	root, here := f.agent.Root()
	switch {
	case f.socket == "" && !here && f.watch:
		return errors.New("--watch reads the pod resources socket of the agent's machine: ask there, or name the " +
			"socket with --socket")
	case f.socket == "" && !here:
		return f.ask(ctx, out)
	case f.socket == "":
		f.socket = filepath.Join(root, "pod-resources", "kubelet.sock")
	}
	if _, err := os.Stat(f.socket); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no agent listens on %s: start it, or name its socket with --socket; "+
			"it is pod-resources/kubelet.sock below the agent's root directory (--root-dir)", f.socket)
	}
	conn, err := grpc.NewClient("unix:"+f.socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		return fmt.Errorf("--socket %s: %w", f.socket, err)
	}
	defer conn.Close()
	if f.watch {
		return f.follow(ctx, conn, out, problems)
	}
	return f.list(ctx, conn, out)
}

// list prints the answer of List or of GetAllocatableResources.
func (f *podResourcesFlags) list(ctx context.Context, conn *grpc.ClientConn, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, podResourcesTimeout)
	defer cancel()
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	var answer proto.Message
	var err error
	if f.allocatable {
		answer, err = client.GetAllocatableResources(ctx,
			&podresourcesv1.AllocatableResourcesRequest{})
	} else {
		answer, err = client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	}
	if err != nil {
		return f.problem(err)
	}
	return f.print(out, answer)
}

// wanted leaves the pods and containers that flags and the argument name.
func (f *podResourcesFlags) wanted(all *podresourcesv1.ListPodResourcesResponse) error {
	names := []podName{{namespace: f.namespace, container: f.container}}
	if f.only != "" {
		var err error
		if names, err = f.readings(f.only); err != nil {
			return err
		}
	}
	var found []*podresourcesv1.PodResources
	for _, n := range names {
		for _, pod := range all.PodResources {
			if n.namespace != "" && pod.Namespace != n.namespace || n.pod != "" && pod.Name != nameIn(all, n) {
				continue
			}
			if n.container != "" {
				pod.Containers = slices.DeleteFunc(pod.Containers, func(c *podresourcesv1.ContainerResources) bool {
					return c.Name != n.container
				})
			}
			found = append(found, pod)
		}
		if len(found) > 0 {
			break
		}
	}
	if len(found) == 0 && f.only != "" {
		return fmt.Errorf("no pod %s has anything of the node", names[0])
	}
	all.PodResources = found
	return nil
}

// nameIn returns the name of the pod that is meant: the one given or, if there is no such pod, the only one whose name
// begins with it and a dash, as that of a static pod begins with the name on its manifest. The API does not say what the
// node is called.
func nameIn(all *podresourcesv1.ListPodResourcesResponse, n podName) string {
	var longer []string
	for _, pod := range all.PodResources {
		switch {
		case pod.Namespace != n.namespace:
		case pod.Name == n.pod:
			return n.pod
		case strings.HasPrefix(pod.Name, n.pod+"-"):
			longer = append(longer, pod.Name)
		}
	}
	if len(longer) == 1 {
		return longer[0]
	}
	return n.pod
}

// ask does the same as list, through the API server of the node's cluster.
func (f *podResourcesFlags) ask(ctx context.Context, out io.Writer) error {
	path := []string{"podresources"}
	var answer proto.Message = &podresourcesv1.ListPodResourcesResponse{}
	if f.allocatable {
		path = append(path, "allocatable")
		answer = &podresourcesv1.AllocatableResourcesResponse{}
	}
	var raw json.RawMessage
	if err := f.agent.Get(ctx, &raw, path...); err != nil {
		return err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, answer); err != nil {
		return fmt.Errorf("read the agent's answer: %w", err)
	}
	return f.print(out, answer)
}

func (f *podResourcesFlags) print(out io.Writer, answer proto.Message) error {
	if list, ok := answer.(*podresourcesv1.ListPodResourcesResponse); ok {
		if err := f.wanted(list); err != nil {
			return err
		}
	}
	if f.output == "json" {
		return writeMessage(out, answer, true)
	}
	rows := newRows(out)
	switch answer := answer.(type) {
	case *podresourcesv1.AllocatableResourcesResponse:
		rows.allocatable(answer)
	case *podresourcesv1.ListPodResourcesResponse:
		if len(answer.PodResources) == 0 {
			_, err := fmt.Fprintln(out, "No pod has anything of the node.")
			return err
		}
		rows.add("NAMESPACE", "POD", "CONTAINER", "CPUS", "MEMORY", "DEVICES")
		for _, pod := range answer.PodResources {
			rows.pod(nil, pod)
		}
	}
	return rows.Flush()
}

// problem adds to an error of a call what the user can do about it.
func (f *podResourcesFlags) problem(err error) error {
	switch status.Code(err) {
	case codes.Unavailable:
		if conn, err := net.Dial("unix", f.socket); err == nil {
			_ = conn.Close()
		} else if errors.Is(err, fs.ErrPermission) {
			return ask.MayNot(f.socket)
		}
		return fmt.Errorf("no agent answers on %s: is it running? (%s)", f.socket,
			status.Convert(err).Message())
	case codes.Unimplemented:
		return fmt.Errorf("the agent on %s cannot do that: the kubelet has no --watch, and old "+
			"ones no --allocatable", f.socket)
	}
	return fmt.Errorf("ask %s: %w", f.socket, err)
}

// follow prints a watch, and opens it again whenever it ends, until ctx ends.
func (f *podResourcesFlags) follow(ctx context.Context, conn *grpc.ClientConn,
	out, problems io.Writer) error {
	var m watchv1.Mirror
	err := keepWatching(ctx, problems, func() (bool, error) {
		err := f.watchOnce(ctx, conn, &m, out)
		return m.Instance != "", err
	})
	if err != nil {
		return f.problem(err)
	}
	return nil
}

// keepWatching opens a watch again and again. It ends when ctx ends, if nothing has ever been
// heard, or on an error that another try cannot cure. It prints why a watch ended, but not
// the same reason twice in a row.
func keepWatching(ctx context.Context, problems io.Writer,
	watch func() (heard bool, err error)) error {
	said := ""
	for {
		heard, err := watch()
		if ctx.Err() != nil {
			return nil
		}
		again := status.Code(err) == codes.Unavailable ||
			status.Code(err) == codes.ResourceExhausted
		if !heard || !again {
			return err
		}
		if why := status.Convert(err).Message(); why != said {
			fmt.Fprintf(problems, "numalet: the watch ended: %s; it goes on once the agent "+
				"answers\n", why)
			said = why
		}
		if !await.For(ctx, rewatchDelay) {
			return nil
		}
	}
}

func (f *podResourcesFlags) watchOnce(ctx context.Context, conn *grpc.ClientConn,
	m *watchv1.Mirror, out io.Writer) error {
	stream, err := watchv1.NewPodResourcesWatcherClient(conn).Watch(ctx, &watchv1.WatchRequest{
		Instance: m.Instance, Generation: m.Generation, Namespace: f.namespace,
		ResourceName: f.resource, Allocatable: f.allocatable,
	})
	if err != nil {
		return err
	}
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return status.Error(codes.Unavailable, "the agent stopped")
		}
		if err != nil {
			return err
		}
		if m.Apply(r); f.output == "json" {
			err = writeMessage(out, r, false)
		} else {
			err = writeEvent(out, r)
		}
		if err != nil {
			return err
		}
	}
}

// writeMessage writes the message with lists that are empty, and not left out. protojson varies its spaces on
// purpose, so the JSON is formatted again.
func writeMessage(out io.Writer, m proto.Message, indent bool) error {
	raw, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	encoder := json.NewEncoder(out)
	if indent {
		encoder.SetIndent("", "  ")
	}
	return encoder.Encode(json.RawMessage(raw))
}

// writeEvent writes a message of a watch in lines that begin with the generation and the event.
func writeEvent(out io.Writer, r *watchv1.WatchResponse) error {
	rows := newRows(out)
	generation := fmt.Sprint(r.GetGeneration())
	switch e := r.GetEvent().(type) {
	case *watchv1.WatchResponse_Snapshot:
		rows.add(generation, "SNAPSHOT", r.GetInstance())
	case *watchv1.WatchResponse_Pod:
		rows.pod([]string{generation, "POD"}, e.Pod.GetResources())
	case *watchv1.WatchResponse_DeletedPod:
		rows.add(generation, "DELETED", e.DeletedPod.GetNamespace(), e.DeletedPod.GetName())
	case *watchv1.WatchResponse_Node:
		rows.add(generation, "NODE", cpuList(e.Node.GetCpuIds()), memoryText(e.Node.GetMemory()))
	case *watchv1.WatchResponse_Devices:
		rows.add(generation, "DEVICES", e.Devices.GetResourceName(),
			devicesText(e.Devices.GetPut()),
			"gone:"+cmp.Or(strings.Join(e.Devices.GetDeletedIds(), ","), "-"))
	default:
		rows.add(generation, "BOOKMARK")
	}
	return rows.Flush()
}

// rows is a table that is being written.
type rows struct{ *tabwriter.Writer }

func newRows(out io.Writer) rows { return rows{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)} }

func (r rows) add(cells ...string) { fmt.Fprintln(r.Writer, strings.Join(cells, "\t")) }

// pod adds a line for what the pod has as a whole, if anything, and one for each container.
func (r rows) pod(first []string, pod *podresourcesv1.PodResources) {
	if len(pod.GetCpuIds())+len(pod.GetMemory()) > 0 {
		r.add(append(first[:len(first):len(first)], pod.Namespace, pod.Name, "*",
			cpuList(pod.CpuIds), memoryText(pod.Memory), devicesText(nil))...)
	}
	for _, c := range pod.GetContainers() {
		r.add(append(first[:len(first):len(first)], pod.Namespace, pod.Name, c.Name,
			cpuList(c.CpuIds), memoryText(c.Memory), held(c))...)
	}
}

// allocatable prints a line for each resource and NUMA node. The API does not say on which nodes
// CPUs are.
func (r rows) allocatable(all *podresourcesv1.AllocatableResourcesResponse) {
	r.add("RESOURCE", "NUMA", "WHAT")
	r.add("cpu", "-", cpuList(all.CpuIds))
	for _, b := range all.Memory {
		r.add(b.MemoryType, nodesText(b.Topology), bytesText(b.Size))
	}
	type device struct{ resource, id string }
	at := map[device]string{} // a device on several nodes has an entry for each
	var order []device
	for _, d := range all.Devices {
		for _, id := range d.DeviceIds {
			key := device{d.ResourceName, id}
			if before, again := at[key]; again {
				at[key] = before + "+" + nodesText(d.Topology)
				continue
			}
			at[key] = nodesText(d.Topology)
			order = append(order, key)
		}
	}
	type place struct{ resource, nodes string }
	ids := map[place][]string{}
	var places []place
	for _, d := range order {
		p := place{d.resource, at[d]}
		if ids[p] == nil {
			places = append(places, p)
		}
		ids[p] = append(ids[p], d.id)
	}
	for _, p := range places {
		r.add(p.resource, p.nodes, strings.Join(ids[p], " "))
	}
}

func cpuList(ids []int64) string {
	set := make([]int, 0, len(ids))
	for _, id := range ids {
		set = append(set, int(id))
	}
	return cmp.Or(cpuset.New(set...).String(), "-")
}

func memoryText(blocks []*podresourcesv1.ContainerMemory) string {
	var out []string
	for _, b := range blocks {
		out = append(out, fmt.Sprintf("%s=%s@%s", b.MemoryType, bytesText(b.Size),
			nodesText(b.Topology)))
	}
	return cmp.Or(strings.Join(out, " "), "-")
}

// bytesText formats a number of bytes as pods request it, such as 8Gi.
func bytesText(n uint64) string {
	return resource.NewQuantity(int64(n), resource.BinarySI).String()
}

// held returns the devices of a container, those of plugins and those of its resource claims.
func held(c *podresourcesv1.ContainerResources) string {
	var out []string
	if len(c.Devices) > 0 {
		out = append(out, devicesText(c.Devices))
	}
	for _, claim := range c.DynamicResources {
		of := map[string][]string{}
		for _, r := range claim.ClaimResources {
			of[r.DriverName] = append(of[r.DriverName], r.PoolName+"/"+r.DeviceName)
		}
		for _, driver := range slices.Sorted(maps.Keys(of)) {
			out = append(out, driver+"="+strings.Join(of[driver], ","))
		}
	}
	return cmp.Or(strings.Join(out, " "), "-")
}

// devicesText returns "resource=id@nodes,id@nodes". It names a device of several nodes once.
func devicesText(devices []*podresourcesv1.ContainerDevices) string {
	var out strings.Builder
	resource, last := "", ""
	for _, d := range devices {
		for _, id := range d.DeviceIds {
			switch {
			case d.ResourceName != resource:
				if resource != "" {
					out.WriteByte(' ')
				}
				fmt.Fprintf(&out, "%s=%s@%s", d.ResourceName, id, nodesText(d.Topology))
			case id == last:
				fmt.Fprintf(&out, "+%s", nodesText(d.Topology))
			default:
				fmt.Fprintf(&out, ",%s@%s", id, nodesText(d.Topology))
			}
			resource, last = d.ResourceName, id
		}
	}
	return cmp.Or(out.String(), "-")
}

func nodesText(t *podresourcesv1.TopologyInfo) string {
	var out []string
	for _, n := range t.GetNodes() {
		out = append(out, fmt.Sprint(n.ID))
	}
	return cmp.Or(strings.Join(out, "+"), "-")
}
