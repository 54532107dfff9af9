// Package places finds where a device of a ResourceSlice is, from its attributes and the machine.
//
// Drivers publish the NUMA node, the PCI address or the PCIe root of a device under standard names
// (k8s.io/dynamic-resource-allocation/deviceattribute) or under names of their own. Default lists
// both; the configuration adds others. A PCI address or a root gives the nodes through the
// machine's PCI devices, where the driver names no node.
//
// Attributes are claims of a driver and may be wrong: a node that the machine does not have is
// unknown, and Find says so.
package places
