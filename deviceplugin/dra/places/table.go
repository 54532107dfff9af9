package places

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/internal/oneline"
)

// Meaning tells what an attribute says about a device.
type Meaning string

// The meanings of attributes, as the configuration writes them.
const (
	// Node: an integer, or a list of integers of which the first is the device's own node and the
	// others are as near; see KEP-6072.
	Node Meaning = "node"
	// Nodes: the device is on all of a list of nodes alike.
	Nodes Meaning = "nodes"
	// Address: the PCI address, as 0000:3b:00.0.
	Address Meaning = "pciAddress"
	// Root: the PCIe root complex, as pci0000:3a; a device may have several.
	Root Meaning = "pcieRoot"
	// UUID: the device's UUID, as the vendor's device plugin names the same device.
	UUID Meaning = "uuid"
	// Parent: the UUID of the device of which this one is a partition.
	Parent Meaning = "parentUUID"
	// CPU: the number of the logical CPU that the device is.
	CPU Meaning = "cpu"
	// CPUs: a list such as 0-3,8 of the logical CPUs that the device consists of.
	CPUs Meaning = "cpus"
	// PageSize: the size of the device's pages, as 2m.
	PageSize Meaning = "pageSize"
	// Ignored: what the attribute says does not count.
	Ignored Meaning = "ignored"
)

// Meanings lists them all.
func Meanings() []Meaning {
	return []Meaning{Node, Nodes, Address, Root, UUID, Parent, CPU, CPUs, PageSize, Ignored}
}

// Table gives attributes their meaning, by full name: "domain/name". If several attributes of a
// device have one meaning, the standard ones (resource.kubernetes.io) count first, and then those
// with the lower name.
type Table map[resourcev1.QualifiedName]Meaning

// Default returns the attributes that are known without configuration.
func Default() Table {
	return Table{
		// k8s.io/dynamic-resource-allocation/deviceattribute, Kubernetes 1.37; KEP-4381, KEP-6072.
		"resource.kubernetes.io/numaNode": Node,
		"resource.kubernetes.io/pciBusID": Address,
		"resource.kubernetes.io/pcieRoot": Root,
		// github.com/NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/deviceinfo.go: GPUs and MIG
		// devices have uuid and pcieBusID, MIG devices parentUUID, and those for VFIO numa.
		"gpu.nvidia.com/uuid":       UUID,
		"gpu.nvidia.com/parentUUID": Parent,
		"gpu.nvidia.com/pcieBusID":  Address,
		"gpu.nvidia.com/pciBusID":   Address,
		"gpu.nvidia.com/numa":       Node,
		"gpu.nvidia.com/numaNode":   Node,
		// github.com/ROCm/k8s-gpu-dra-driver, docs: attributes of GPUs and their partitions.
		"gpu.amd.com/numaNode": Node,
		"gpu.amd.com/pciAddr":  Address,
		// github.com/google/dranet, pkg/apis/attributes.go; drivers of others publish numaNode too,
		// to be aligned with its interfaces.
		"dra.net/numaNode":   Node,
		"dra.net/pciAddress": Address,
		// github.com/k8snetworkplumbingwg/dra-driver-sriov, pkg/consts/consts.go.
		"sriovnetwork.k8snetworkplumbingwg.io/pciAddress": Address,
		// github.com/kubernetes-sigs/dra-driver-cpu, docs/user/device-attributes.md.
		"dra.cpu/numaNodeID": Node,
		"dra.cpu/cpuID":      CPU,
		"dra.cpu/cpuIDs":     CPUs,
		// github.com/kad/dra-driver-memory.
		"dra.memory/numaNode": Node,
		"dra.memory/pageSize": PageSize,
	}
}

// ParseTable reads entries as example.com/numa=node. The error names those that are none, or that
// contradict another.
func ParseTable(entries []string) (Table, error) {
	out := Table{}
	var wrong []string
	for _, text := range entries {
		name, meaning, err := parseEntry(text)
		if before, twice := out[name]; err == nil && twice && before != meaning {
			err = fmt.Errorf("the attribute means %s already", before)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%q: %v", oneline.Cut(text, 128), err))
			continue
		}
		out[name] = meaning
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("write DOMAIN/NAME=MEANING, as example.com/numa=node; %s",
			strings.Join(wrong, "; "))
	}
	return out, nil
}

func parseEntry(text string) (resourcev1.QualifiedName, Meaning, error) {
	name, meaning, _ := strings.Cut(text, "=")
	domain, own, _ := strings.Cut(name, "/")
	switch {
	case len(validation.IsDNS1123Subdomain(domain)) > 0 || len(domain) > resourcev1.DeviceMaxDomainLength:
		return "", "", fmt.Errorf("the domain has to be a DNS name of at most %d characters, that of the "+
			"driver if it names none", resourcev1.DeviceMaxDomainLength)
	case len(validation.IsCIdentifier(own)) > 0 || len(own) > resourcev1.DeviceMaxIDLength:
		return "", "", fmt.Errorf("the name has to be letters, digits and _, at most %d",
			resourcev1.DeviceMaxIDLength)
	case !slices.Contains(Meanings(), Meaning(meaning)):
		return "", "", fmt.Errorf("there are the meanings %s",
			strings.Trim(fmt.Sprint(Meanings()), "[]"))
	}
	return resourcev1.QualifiedName(name), Meaning(meaning), nil
}

// With returns the table with others added; they replace those of the same name.
func (t Table) With(others Table) Table {
	out := maps.Clone(t)
	maps.Copy(out, others)
	return out
}

// standardDomain is the domain of attributes that Kubernetes defines.
const standardDomain = "resource.kubernetes.io/"

// of returns the device's attributes by meaning, the one that counts first first.
func (t Table) of(d Device) map[Meaning][]attribute {
	out := map[Meaning][]attribute{}
	for name, value := range d.Attributes {
		full := name
		if !strings.Contains(string(name), "/") { // the driver is its domain
			full = resourcev1.QualifiedName(d.Driver) + "/" + name
		}
		if m, known := t[full]; known {
			out[m] = append(out[m], attribute{string(full), value})
		}
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b attribute) int {
			if std := strings.HasPrefix(a.name, standardDomain); std !=
				strings.HasPrefix(b.name, standardDomain) {
				if std {
					return -1
				}
				return 1
			}
			return strings.Compare(a.name, b.name)
		})
	}
	return out
}

// attribute is an attribute by its full name.
type attribute struct {
	name  string
	value resourcev1.DeviceAttribute
}

// ints returns the attribute's integers; none: it has another type.
func (a attribute) ints() []int64 {
	if a.value.IntValue != nil {
		return []int64{*a.value.IntValue}
	}
	return a.value.IntValues
}

// texts returns the attribute's strings; none: it has another type.
func (a attribute) texts() []string {
	if a.value.StringValue != nil {
		return []string{*a.value.StringValue}
	}
	return a.value.StringValues
}
