package dra

import (
	"slices"
	"strconv"
	"strings"
	"unicode"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/dynamic-resource-allocation/deviceattribute"

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

type attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute

// text adds a string, which is left out if it is empty or too long for the API.
func (a attributes) text(name resourcev1.QualifiedName, value string) {
	if value != "" && len(value) <= resourcev1.DeviceAttributeMaxValueLength {
		a[name] = resourcev1.DeviceAttribute{StringValue: &value}
	}
}

func (a attributes) number(name resourcev1.QualifiedName, value int) {
	a[name] = resourcev1.DeviceAttribute{IntValue: new(int64(value))}
}

// version adds a version in the form of semver: "570.172.08" is 570.172.8, and "9.0" is 9.0.0.
func (a attributes) version(name resourcev1.QualifiedName, value string) {
	parsed, err := version.ParseGeneric(value)
	if err != nil {
		return // unknown
	}
	var parts []string
	for n := range 3 {
		part := uint(0)
		if all := parsed.Components(); n < len(all) {
			part = all[n]
		}
		parts = append(parts, strconv.FormatUint(uint64(part), 10))
	}
	a[name] = resourcev1.DeviceAttribute{VersionValue: new(strings.Join(parts, "."))}
}

func (i inventory) attributes(d device) attributes {
	out := attributes{}
	out.text("type", typeGPU)
	if d.place == nil { // else it changes with each claim
		out.text("uuid", d.uuid())
	}
	out.text("productName", d.gpu.Name)
	out.text("brand", d.gpu.Traits.Brand)
	out.text("architecture", d.gpu.Traits.Architecture)
	out.version("cudaComputeCapability", d.gpu.Traits.Compute)
	out.version("driverVersion", i.state.Driver)
	out.version("cudaDriverVersion", i.state.CUDA)
	out.number("index", d.gpu.Index)
	out.number("minor", d.gpu.Minor)
	out.text("pcieBusID", d.gpu.Bus)
	out.text(deviceattribute.StandardDeviceAttributePCIBusID, d.gpu.Bus)
	out.text(deviceattribute.StandardDeviceAttributePCIeRoot, d.gpu.Root)
	if d.gpu.Node != topology.NoNode {
		out.number(deviceattribute.StandardDeviceAttributeNUMANode, int(d.gpu.Node))
	}
	if profile := d.profile(); profile != "" {
		out.text("type", typeMIG)
		out.text("profile", profile)
		out.text("parentUUID", d.gpu.UUID)
	} else if group, joined := i.nvlinkGroup(d.gpu); joined {
		out.number(nvlinkGroup, group)
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

// taints keep the scheduler from devices that something counts against. What runs on them is left
// to the node's own rules for failed devices.
func (i inventory) taints(d device) (out []resourcev1.DeviceTaint) {
	for _, t := range d.troubles {
		taint := resourcev1.DeviceTaint{Key: i.Driver + "/" + taintName(t.Reason),
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
