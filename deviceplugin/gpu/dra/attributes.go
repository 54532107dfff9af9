package dra

import (
	"slices"
	"strings"
	"unicode"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/topology"
)

// Names of NVIDIA's driver; numaNode, pciBusID and pcieRoot are Kubernetes' standard attributes.
const (
	memoryCapacity = "memory"
	typeGPU        = "gpu"
	typeMIG        = "mig"
	// nvlinkGroup is ours: the lowest index of the GPUs that NVLinks join, also by way of others.
	nvlinkGroup = "numalet.io/nvlinkGroup"
)

func (i inventory) attributes(d device) dradriver.Attributes {
	out := dradriver.Attributes{}
	out.Text("type", typeGPU)
	if d.place == nil { // else it changes with each claim
		out.Text("uuid", d.uuid())
	}
	out.Text("productName", d.gpu.Name)
	out.Text("brand", d.gpu.Traits.Brand)
	out.Text("architecture", d.gpu.Traits.Architecture)
	out.Version("cudaComputeCapability", d.gpu.Traits.Compute)
	out.Version("driverVersion", i.state.Driver)
	out.Version("cudaDriverVersion", i.state.CUDA)
	out.Number("index", d.gpu.Index)
	out.Number("minor", d.gpu.Minor)
	out.Text("pcieBusID", d.gpu.Bus)
	var node *int
	if d.gpu.Node != topology.NoNode {
		node = new(int(d.gpu.Node))
	}
	out.Place(d.gpu.Bus, d.gpu.Root, node)
	if profile := d.profile(); profile != "" {
		out.Text("type", typeMIG)
		out.Text("profile", profile)
		out.Text("parentUUID", d.gpu.UUID)
	} else if group, joined := i.nvlinkGroup(d.gpu); joined {
		out.Number(nvlinkGroup, group)
	}
	return out
}

// profile returns the profile of a MIG device or of a place for one; "": the device is a GPU.
func (d device) profile() string {
	switch {
	case d.place != nil:
		return d.place.Profile
	case d.instance != nil:
		return d.instance.Profile
	}
	return ""
}

// capacityOf returns the memory of a device, if it is known.
func capacityOf(d device) map[resourcev1.QualifiedName]resourcev1.DeviceCapacity {
	memory := d.gpu.Traits.Memory
	if profile := d.profile(); profile != "" {
		at := slices.IndexFunc(d.gpu.Traits.Partitions,
			func(p gpu.Partition) bool { return p.Profile == profile })
		if at < 0 {
			return nil
		}
		memory = d.gpu.Traits.Partitions[at].Memory
	}
	if memory == 0 {
		return nil
	}
	return map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
		memoryCapacity: {Value: *bytes(int64(memory))},
	}
}

// nvlinkGroup returns the lowest index of the GPUs that NVLinks join with this one; false: none do.
func (i inventory) nvlinkGroup(g gpu.GPU) (group int, joined bool) {
	all := i.state.GPUs
	at := slices.IndexFunc(all, func(o gpu.GPU) bool { return o.UUID == g.UUID })
	seen, next := map[int]bool{at: true}, []int{at}
	for group = g.Index; len(next) > 0; next = next[1:] {
		from := next[0]
		group = min(group, all[from].Index)
		for to := range all {
			linked := from < len(i.state.Links) && to < len(i.state.Links[from]) &&
				i.state.Links[from][to].NVLink > 0
			if linked && !seen[to] {
				seen[to], next = true, append(next, to)
			}
		}
	}
	return group, len(seen) > 1
}

// taints keep the scheduler from devices that something counts against. The node's own rules for failed
// devices decide on containers that have them.
func (i inventory) taints(d device) (out []resourcev1.DeviceTaint) {
	for _, t := range d.troubles {
		taint := resourcev1.DeviceTaint{Key: i.driver + "/" + taintName(t.Reason),
			Effect: resourcev1.DeviceTaintEffectNoSchedule}
		if !slices.Contains(out, taint) && len(out) < resourcev1.DeviceTaintsMaxLength {
			out = append(out, taint)
		}
	}
	return out
}

// taintName returns NVIDIA's name for the reason where it has one, else the reason in a taint's
// form: "row-remap-pending".
func taintName(reason gpu.Reason) string {
	switch reason {
	case gpu.FellOffBus:
		return "gpu-lost"
	case gpu.CriticalXID:
		return "xid"
	}
	var out strings.Builder
	runes := []rune(reason)
	for n, r := range runes {
		first := n > 0 && unicode.IsUpper(r) &&
			(unicode.IsLower(runes[n-1]) || n+1 < len(runes) && unicode.IsLower(runes[n+1]))
		if first {
			out.WriteByte('-')
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
