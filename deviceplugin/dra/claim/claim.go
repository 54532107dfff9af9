package claim

import (
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/topology"
)

// Use is a ResourceClaim that a pod uses. It is never written to.
type Use struct {
	// Pod is the claim's name in spec.resourceClaims; "": the claim stands for extended resources, see
	// status.extendedResourceClaimStatus.
	Pod string
	dra.Claim
	// Devices are the allocated ones, in the order of the allocation.
	Devices []Device
}

// Device is an allocated device.
type Device struct {
	// Request is the request, "request" or "request/subrequest", that it was allocated for.
	Request string
	Driver, Pool, Name,
	// ShareID tells shares of one device apart; "": it is not shared.
	ShareID string
	// Admin: the claim has administrative access, beside those whose device it is.
	Admin bool
	// Consumed is the claim's share of a device that several claims share; zero: the whole device.
	Consumed Amount
	Place    Place
}

// Place is where a device is; the zero value: unknown.
type Place struct {
	Nodes topology.NodeSet
	// PCI is the device's address, as 0000:01:00.0, and Root that of its PCIe root complex, as
	// pci0000:00; "": unknown.
	PCI, Root string
	// UUID is the device's UUID as its driver names it, as GPU-..., and Parent that of the device of
	// which it is a partition; "": unknown, or no partition.
	UUID, Parent string
	// CPUs are the logical CPUs that the device consists of, in the kernel's list syntax; "": unknown,
	// or it has none.
	CPUs string
	// Has are the device's CPUs and memory, PageBytes the size of its huge pages.
	Has       Amount
	PageBytes int64
}

// Lack says why a pod's claims cannot be used; the zero value: they can.
type Lack struct {
	// Reason is ReasonWaitClaim or ReasonWaitDriver; "": nothing is lacking.
	Reason string
	// Why names the claim or the driver, and what has to happen.
	Why string
}

// Reasons of pods that wait for a claim, or for a driver to register. The kubelet has none.
const (
	ReasonWaitClaim  = "WaitingForResourceClaim"
	ReasonWaitDriver = "WaitingForResourceDriver"
)
