package managers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/cpumanager"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// The node of this measurement: each pod takes two CPUs, memory and one of the devices.
const (
	admissionNodes   = 8
	admissionCPUs    = 256
	admissionDevices = 120
	heldPods         = 60 // by which an admission finds a node half full
	admissionTime    = 5 * time.Second
)

// Admissions measures the whole of admission but for the plugins: the queue, all three managers
// under restricted, and the state file on disk.
func Admissions(ctx context.Context) (*Table, error) {
	t := newTable("Admissions",
		"Pods with two exclusive CPUs, memory and a device on 8 NUMA nodes, beside 60 that hold "+
			"the same,\n"+
			"under restricted with static CPU and memory managers; each is admitted and released "+
			"again.\n"+
			"The plugins answer at once. A write is durable: one fsync of the file, one of its "+
			"folder.",
		"AT ONCE", "ADMISSIONS/s", "p50 / p99", "WRITES PER ADMISSION", "FSYNCS", "BYTES")
	for _, atOnce := range []int{1, 16} {
		f, err := admissionTimes(ctx, atOnce)
		if err != nil {
			return nil, err
		}
		t.row(fmt.Sprint(atOnce), fmt.Sprintf("%.0f", f.rate), f.took.String(),
			fmt.Sprintf("%.2f", f.writes), fmt.Sprintf("%.2f", 2*f.writes),
			fmt.Sprintf("%.0f", f.bytes))
		suffix := ""
		if atOnce > 1 {
			suffix = fmt.Sprintf("_%d", atOnce)
		}
		t.Values["admissions_per_s"+suffix] = float64(int(f.rate))
		t.Values["fsyncs_per_admission"+suffix] = float64(int(200*f.writes)) / 100
		t.Values["bytes_per_admission"+suffix] = float64(int(f.bytes))
	}
	return t, nil
}

type admissionFigures struct {
	rate          float64
	took          times
	writes, bytes float64 // of an admission and its release
}

// desk is a queue that admits pods, and what is needed to do so.
type desk struct {
	queue    *admission.Queue
	store    *allocation.Store
	outcomes chan admission.Result
	number   int
}

func admissionTimes(ctx context.Context, atOnce int) (f admissionFigures, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	dir, err := os.MkdirTemp("", "nl-")
	if err != nil {
		cancel()
		return f, err
	}
	defer os.RemoveAll(dir)
	d, err := newDesk(dir, nil)
	if err != nil {
		cancel()
		return f, err
	}
	ended := make(chan error, 2)
	go func() { ended <- d.store.Run(ctx) }()
	go func() { ended <- d.queue.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended, <-ended)
	}()
	for range heldPods {
		if _, err := d.admit(ctx, 1); err != nil {
			return f, err
		}
	}
	written, err := writtenBytes()
	if err != nil {
		return f, err
	}
	begin, version := time.Now(), d.store.State().Version
	for time.Since(begin) < admissionTime {
		took, err := d.admit(ctx, atOnce)
		if err != nil {
			return f, err
		}
		f.took = append(f.took, took...)
		for i := range atOnce {
			d.queue.Release(uidOf(d.number - i))
		}
	}
	spent, count := time.Since(begin), float64(len(f.took))
	after, err := writtenBytes()
	if err != nil {
		return f, err
	}
	f.rate = count / spent.Seconds()
	f.writes = float64(d.store.State().Version-version) / count
	f.bytes = float64(after-written) / count
	f.took.sort()
	return f, nil
}

// newDesk is without plugins given one whose devices are spread over the nodes.
func newDesk(dir string, plugins admission.Plugins) (*desk, error) {
	m, err := invent(admissionNodes, admissionCPUs)
	if err != nil {
		return nil, err
	}
	cpus, err := cpumanager.NewStatic(m, cpuset.New(0, admissionCPUs/2), cpumanager.Options{})
	if err != nil {
		return nil, err
	}
	mem, err := memory.New(m, memory.Amounts{0: {v1.ResourceMemory: 1 << 30}})
	if err != nil {
		return nil, err
	}
	reservation := node.Reservation{MaxPods: 1000}
	hardware := machine.Hardware{
		Machine: m, CPUs: cpus, Memory: mem, Reservation: reservation,
		Allocatable: node.Allocatable(m, reservation),
	}
	if plugins == nil {
		plugins = promptPlugins{inventoryOf(m)}
	}
	store, err := allocation.Open(dir)
	if err != nil {
		return nil, err
	}
	d := &desk{store: store, outcomes: make(chan admission.Result, 1000)}
	d.queue = admission.New(admission.Config{
		Hardware: func() machine.Hardware { return hardware }, Policy: topology.Restricted,
		Scope: topology.ContainerScope, Store: store, Plugins: plugins,
		BootID: "bench", Wait: time.Minute,
		Report: func(r admission.Result) { d.outcomes <- r },
	})
	return d, nil
}

// admit submits so many pods at once and returns how long each took to be admitted.
func (d *desk) admit(ctx context.Context, pods int) (times, error) {
	var took times
	begin := time.Now()
	for range pods {
		d.number++
		d.queue.Submit(benchPod(d.number), false)
	}
	for len(took) < pods {
		select {
		case r := <-d.outcomes:
			switch r.Outcome {
			case admission.Admit:
				took = append(took, time.Since(begin))
			case admission.Reject:
				return nil, fmt.Errorf("pod %s was rejected: %s: %s",
					r.Pod.Name, r.Reason, r.Message)
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return took, nil
}

func uidOf(number int) types.UID { return types.UID(fmt.Sprintf("bench-%08d", number)) }

func benchPod(number int) *v1.Pod {
	amounts := v1.ResourceList{
		v1.ResourceCPU:    resource.MustParse("2"),
		v1.ResourceMemory: resource.MustParse("1Gi"),
		benchResource:     resource.MustParse("1"),
	}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name: "main", Resources: v1.ResourceRequirements{Requests: amounts, Limits: amounts},
	}}}}
	pod.UID, pod.Namespace = uidOf(number), "default"
	pod.Name = string(pod.UID)
	return pod
}

// promptPlugins answer at once and prefer nothing.
type promptPlugins struct{ inventory deviceplugin.Inventory }

func inventoryOf(m *topology.Machine) deviceplugin.Inventory {
	r := deviceplugin.Resource{Name: benchResource, Connected: true}
	nodes := m.NodeSet().IDs()
	for i := range admissionDevices {
		r.Devices = append(r.Devices, &deviceplugin.Device{
			ID: fmt.Sprintf("device-%d", i), Healthy: true,
			Nodes: topology.NewNodeSet(nodes[i*len(nodes)/admissionDevices]),
		})
	}
	r.Capacity, r.Allocatable = admissionDevices, admissionDevices
	return deviceplugin.Inventory{
		Version: 1, Resources: map[string]deviceplugin.Resource{benchResource: r},
	}
}

func (p promptPlugins) Inventory() deviceplugin.Inventory { return p.inventory }

func (p promptPlugins) Preferred(context.Context, deviceplugin.PreferredRequest) ([]string, error) {
	return nil, errors.New("no preference")
}

func (p promptPlugins) Allocate(context.Context, string, []string) (
	*pluginapi.ContainerAllocateResponse, error) {
	return &pluginapi.ContainerAllocateResponse{Envs: map[string]string{"BENCH": "1"}}, nil
}

// writtenBytes is what this process has given to write(2) so far (proc_pid_io(5), wchar).
func writtenBytes() (int64, error) {
	raw, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "wchar: "); ok {
			return strconv.ParseInt(text, 10, 64)
		}
	}
	return 0, errors.New("/proc/self/io has no wchar")
}
