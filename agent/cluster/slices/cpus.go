package slices

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/klog/v2"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology"
)

// CPUs describes what the agent's own driver of CPUs publishes: for each NUMA node one device, of
// which many claims can have some CPUs.
type CPUs struct {
	Machine *topology.Machine
	// All are the CPUs that pods can have exclusively, Free those of them that none has by requests.
	All, Free cpuset.CPUSet
	// Step is the number of CPUs by which claims grow: the threads of a core if only whole cores are
	// given out.
	Step int64
	// Mapped: the scheduler counts the CPUs of claims as the node's (DRANodeAllocatableResources).
	Mapped bool
}

// Devices returns the devices with the attributes of dra-driver-cpu's that are grouped by NUMA node.
func (c CPUs) Devices() (out []resourcev1.Device) {
	for _, node := range c.Machine.Nodes() {
		on := c.Machine.CPUsOfNode(node.ID)
		all := c.All.Intersection(on)
		if all.IsEmpty() {
			continue
		}
		number := func(n int) resourcev1.DeviceAttribute {
			return resourcev1.DeviceAttribute{IntValue: ptr.To(int64(n))}
		}
		d := resourcev1.Device{Name: claim.CPUDevice(node.ID), AllowMultipleAllocations: ptr.To(true),
			Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
				"resource.kubernetes.io/numaNode": number(int(node.ID)),
				"dra.cpu/numaNodeID":              number(int(node.ID)),
				"dra.net/numaNode":                number(int(node.ID)),
				"dra.cpu/numCPUs":                 number(all.Size()),
				"dra.cpu/smtEnabled":              {BoolValue: ptr.To(c.threads(on))},
			},
			Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
				cpuCapacity: c.capacity(c.Free.Intersection(on).Size())},
		}
		if first, known := c.Machine.CPU(on.List()[0]); known {
			d.Attributes["dra.cpu/socketID"] = number(int(first.Socket))
		}
		if c.Mapped {
			d.NodeAllocatableResources = map[v1.ResourceName]resourcev1.NodeAllocatableResource{
				v1.ResourceCPU: {Mapping: &resourcev1.NodeAllocatableMapping{
					CapacityKey:        ptr.To[resourcev1.QualifiedName](cpuCapacity),
					CapacityMultiplier: ptr.To(quantity(1))}}}
		}
		out = append(out, d)
	}
	return out
}

// capacity lets claims ask for a whole number of CPUs.
func (c CPUs) capacity(free int) resourcev1.DeviceCapacity {
	out := resourcev1.DeviceCapacity{Value: quantity(int64(free))}
	if step := ptr.To(quantity(c.Step)); int64(free) >= c.Step { // a policy must fit the value
		out.RequestPolicy = &resourcev1.CapacityRequestPolicy{Default: step,
			ValidRange: &resourcev1.CapacityRequestPolicyRange{Min: step, Step: step}}
	}
	return out
}

// cpuCapacity is how many CPUs of a device claims can have.
const cpuCapacity = "dra.cpu/cpu"

func quantity(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// threads reports whether any core has more than one of the CPUs.
func (c CPUs) threads(cpus cpuset.CPUSet) bool {
	for _, id := range cpus.UnsortedList() {
		if cpu, known := c.Machine.CPU(id); known && c.Machine.CPUsOfCore(cpu.Core).Size() > 1 {
			return true
		}
	}
	return false
}

// Publisher writes the agent's own slices.
type Publisher struct {
	Client kubernetes.Interface
	Node   string
	// Registered reports whether the API server has the node's object, Now what to publish.
	Registered func() bool
	Now        func() CPUs
	// Changed has a value when Now may return something else.
	Changed <-chan struct{}
}

// settle is the time within which changes share one write, and after which deleted slices are written
// again.
const settle = time.Second

// Run publishes until ctx ends. The slices stay: another agent, or a kubelet, deletes them when it
// starts.
func (p Publisher) Run(ctx context.Context) error {
	for !p.Registered() {
		if !await.For(ctx, settle) {
			return nil
		}
	}
	reported := map[string]bool{}
	writer, err := resourceslice.StartController(ctx, resourceslice.Options{
		DriverName: claim.CPUDriver, KubeClient: p.Client, SyncDelay: ptr.To(settle),
		Owner: &resourceslice.Owner{APIVersion: "v1", Kind: "Node", Name: p.Node},
		ErrorHandler: func(ctx context.Context, err error, what string) {
			if text := err.Error(); !reported[text] && len(reported) < mostReported {
				reported[text] = true
				klog.FromContext(ctx).Error(err, "The CPUs of the driver dra.cpu are not published as they "+
					"should be; it is tried again", "what", what)
			}
		},
	})
	if err != nil {
		return err
	}
	defer writer.Stop()
	for {
		writer.Update(&resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{
			p.Node: {Slices: []resourceslice.Slice{{Devices: p.Now().Devices()}}}}})
		if !await.For(ctx, settle) || !await.On(ctx, p.Changed) {
			return nil
		}
	}
}
