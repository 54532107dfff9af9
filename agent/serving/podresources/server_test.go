package podresources

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
	podresourcesv1alpha1 "k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

func snapshot() Snapshot {
	train := podtest.New("train", podtest.UID("1"), podtest.Containers("init!", "side~", "main"))
	web := podtest.New("a/web", podtest.UID("2"), podtest.Containers("nginx"))
	gpus := devicemanager.Resource{Name: "example.com/gpu", Connected: true,
		Devices: []*devicemanager.Device{
			{ID: "gpu-0", Healthy: true, Nodes: topology.NewNodeSet(0)},
			{ID: "gpu-1", Healthy: true, Nodes: topology.NewNodeSet(0, 1)},
			{ID: "gpu-2"},
		}}
	return Snapshot{
		Pods: []*v1.Pod{train, web},
		Assigned: allocation.State{Pods: map[types.UID]allocation.Pod{"1": {
			Containers: map[string]allocation.Container{
				"init": {allocation.CPUs(cpuset.New(9))},
				"main": {allocation.CPUs(cpuset.New(2, 3)), allocation.Devices{
					{Resource: "example.com/away", IDs: []string{"x"}},
					{Resource: "example.com/gpu", IDs: []string{"gpu-0", "gpu-1"},
						Nodes: []topology.NodeSet{topology.NewNodeSet(0),
							topology.NewNodeSet(0, 1)}},
				}},
			},
		}}},
		Inventory: devicemanager.Inventory{Resources: map[string]devicemanager.Resource{
			"example.com/gpu": gpus,
			"example.com/off": {Name: "example.com/off", Devices: gpus.Devices},
		}},
		CPUs: cpuset.New(1, 2, 3),
	}
}

// detailed is snapshot with memory and a device whose topology names no node.
func detailed() Snapshot {
	s := snapshot()
	machine, err := topology.NewMachine(topology.Spec{
		Nodes: []topology.Node{{ID: 0, MemoryBytes: 8 << 30}, {ID: 1, MemoryBytes: 4 << 30}},
		CPUs:  []topology.CPU{{ID: 0}},
	})
	if err != nil {
		panic(err)
	}
	if s.Memory, err = memory.New(machine,
		memory.Amounts{0: {v1.ResourceMemory: 1 << 30}}); err != nil {
		panic(err)
	}
	s.Inventory.Resources["example.com/nowhere"] = devicemanager.Resource{
		Name: "example.com/nowhere", Connected: true,
		Devices: []*devicemanager.Device{
			{ID: "y", Healthy: true, NoNodes: true}, {ID: "z", Healthy: true},
		},
	}
	main := s.Assigned.Pods["1"].Containers["main"]
	main = main.With(allocation.Devices(append(main.Devices(), allocation.DeviceSet{
		Resource: "example.com/nowhere", IDs: []string{"y"},
	})))
	main = main.With(allocation.Memory([]memory.Block{
		{Nodes: topology.NewNodeSet(0, 1), Resource: v1.ResourceMemory, Size: 9 << 30},
		{Nodes: topology.NewNodeSet(1), Resource: "hugepages-2Mi", Size: 2 << 20},
	}))
	s.Assigned.Pods["1"].Containers["main"] = main
	return s
}

// serve starts a server and connects to it.
func serve(t *testing.T) (*grpc.ClientConn, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	s, err := New(Config{Socket: socket, Snapshot: detailed})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	return conn, socket
}

// compact formats a message as prototext in one line, without the random spaces of prototext.
func compact(m proto.Message) string {
	text := prototext.MarshalOptions{}.Format(m)
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), ": ", ":")
}

func TestAnswers(t *testing.T) {
	conn, _ := serve(t)
	ctx := context.Background()
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	const main = `containers:{name:"main" devices:{resource_name:"example.com/away" ` +
		`device_ids:"x"} ` +
		`devices:{resource_name:"example.com/gpu" device_ids:"gpu-0" topology:{nodes:{}}} ` +
		`devices:{resource_name:"example.com/gpu" device_ids:"gpu-1" topology:{nodes:{}}} ` +
		`devices:{resource_name:"example.com/gpu" device_ids:"gpu-1" topology:{nodes:{ID:1}}} ` +
		`devices:{resource_name:"example.com/nowhere" device_ids:"y"} ` +
		`cpu_ids:2 cpu_ids:3 ` +
		`memory:{memory_type:"memory" size:9663676416 topology:{nodes:{} nodes:{ID:1}}} ` +
		`memory:{memory_type:"hugepages-2Mi" size:2097152 topology:{nodes:{ID:1}}}}`

	list, err := client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := compact(list),
		`pod_resources:{name:"web" namespace:"a" containers:{name:"nginx"}} `+
			`pod_resources:{name:"train" namespace:"default" `+
			`containers:{name:"side"} `+main+`}`; got != want {
		t.Errorf("List:\n%s\nwant\n%s", got, want)
	}

	pod, err := client.Get(ctx,
		&podresourcesv1.GetPodResourcesRequest{PodName: "train", PodNamespace: "default"})
	if err != nil || len(pod.PodResources.Containers) != 2 {
		t.Errorf("Get() = %v, %v, want two containers", pod, err)
	}
	_, err = client.Get(ctx,
		&podresourcesv1.GetPodResourcesRequest{PodName: "train", PodNamespace: "a"})
	if err == nil || status.Convert(err).Message() != "pod train in namespace a not found" {
		t.Errorf("Get of an unknown pod: %v", err)
	}

	all, err := client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := compact(all),
		`devices:{resource_name:"example.com/gpu" device_ids:"gpu-0" topology:{nodes:{}}} `+
			`devices:{resource_name:"example.com/gpu" device_ids:"gpu-1" topology:{nodes:{}}} `+
			`devices:{resource_name:"example.com/gpu" device_ids:"gpu-1" topology:{nodes:{ID:1}}} `+
			`devices:{resource_name:"example.com/nowhere" device_ids:"z"} `+
			`cpu_ids:1 cpu_ids:2 cpu_ids:3 `+
			`memory:{memory_type:"memory" size:7516192768 topology:{nodes:{}}} `+
			`memory:{memory_type:"memory" size:4294967296 topology:{nodes:{ID:1}}}`; got != want {
		t.Errorf("GetAllocatableResources:\n%s\nwant\n%s", got, want)
	}

	old, err := podresourcesv1alpha1.NewPodResourcesListerClient(conn).List(ctx,
		&podresourcesv1alpha1.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := compact(old.PodResources[1]), `name:"train" namespace:"default" `+
		`containers:{name:"main" devices:{resource_name:"example.com/away" device_ids:"x"} `+
		`devices:{resource_name:"example.com/gpu" device_ids:"gpu-0"} `+
		`devices:{resource_name:"example.com/gpu" device_ids:"gpu-1"} `+
		`devices:{resource_name:"example.com/gpu" device_ids:"gpu-1"} `+
		`devices:{resource_name:"example.com/nowhere" device_ids:"y"}}`; got != want {
		t.Errorf("v1alpha1:\n%s\nwant\n%s", got, want)
	}
}

// TestPoolOfAPod: what containers share within their pod is the pod's, which also lists what is a container's
// alone.
func TestPoolOfAPod(t *testing.T) {
	s := detailed()
	on := func(size uint64, cpus ...int) allocation.Container {
		return allocation.Container{allocation.CPUs(cpuset.New(cpus...)), allocation.Memory{
			{Nodes: topology.NewNodeSet(1), Resource: v1.ResourceMemory, Size: size}}}
	}
	s.Pods = []*v1.Pod{podtest.New("p", podtest.Containers("i!", "a cpu=1 memory=1Gi", "b"),
		podtest.Resources("cpu=3 memory=4Gi"))}
	s.Assigned.Pods = map[types.UID]allocation.Pod{"p": {Containers: map[string]allocation.Container{
		allocation.WholePod: on(4<<30, 1, 2, 3), "i": on(4<<30, 1, 2, 3), "a": on(1<<30, 1), "b": on(3<<30, 2, 3)}}}
	got := s.find("default", "p")
	const want = `name:"p" namespace:"default" containers:{name:"a" cpu_ids:1 memory:{memory_type:"memory" ` +
		`size:1073741824 topology:{nodes:{ID:1}}}} containers:{name:"b"} cpu_ids:1 cpu_ids:2 cpu_ids:3 ` +
		`memory:{memory_type:"memory" size:4294967296 topology:{nodes:{ID:1}}}`
	if text := compact(got); text != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	for resource, wants := range map[string]bool{"cpu": true, "memory": true, "example.com/gpu": false} {
		if (filter{resource: resource}).pod(got) != wants {
			t.Errorf("a reader of %s gets it: %t", resource, !wants)
		}
	}
}

// A burst of calls is answered; others are refused with the kubelet's message.
func TestRateLimit(t *testing.T) {
	conn, _ := serve(t)
	client := podresourcesv1.NewPodResourcesListerClient(conn)
	const calls = 500
	errs := make(chan error, calls)
	for range calls {
		go func() {
			_, err := client.List(context.Background(), &podresourcesv1.ListPodResourcesRequest{})
			errs <- err
		}()
	}
	answered, refused := 0, 0
	for range calls {
		switch err := <-errs; {
		case err == nil:
			answered++
		case status.Code(err) == codes.ResourceExhausted &&
			status.Convert(err).Message() == "rejected by rate limit":
			refused++
		default:
			t.Errorf("List() = %v", err)
		}
	}
	const burst = 10 // as in the kubelet
	if answered < burst || refused == 0 {
		t.Errorf("%d calls answered, %d refused; want a burst of at least %d and some refused",
			answered, refused, burst)
	}
}

func TestSocketOfAKilledAgentIsReplaced(t *testing.T) {
	_, socket := serve(t)
	s, err := New(Config{Socket: socket, Snapshot: snapshot})
	if err != nil {
		t.Fatal(err)
	}
	s.listener.Close()
}
