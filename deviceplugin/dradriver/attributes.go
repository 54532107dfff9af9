package dradriver

import (
	"strconv"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

// Attributes are a device's attributes in a ResourceSlice, by name.
type Attributes map[resourcev1.QualifiedName]resourcev1.DeviceAttribute

// Text adds a string, which is left out if it is empty or too long for the API.
func (a Attributes) Text(name resourcev1.QualifiedName, value string) {
	if value != "" && len(value) <= resourcev1.DeviceAttributeMaxValueLength {
		a[name] = resourcev1.DeviceAttribute{StringValue: &value}
	}
}

// Number adds an integer.
func (a Attributes) Number(name resourcev1.QualifiedName, value int) {
	a[name] = resourcev1.DeviceAttribute{IntValue: new(int64(value))}
}

// Flag adds a boolean.
func (a Attributes) Flag(name resourcev1.QualifiedName, value bool) {
	a[name] = resourcev1.DeviceAttribute{BoolValue: &value}
}

// Version adds a version in the form of semver: "570.172.08" is 570.172.8, and "9.0" is 9.0.0.
func (a Attributes) Version(name resourcev1.QualifiedName, value string) {
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

// Place adds Kubernetes' standard attributes: the PCI address, the root complex, the NUMA node;
// "" and nil are unknown.
func (a Attributes) Place(address, root string, node *int) {
	a.Text(deviceattribute.StandardDeviceAttributePCIBusID, address)
	a.Text(deviceattribute.StandardDeviceAttributePCIeRoot, root)
	if node != nil {
		a.Number(deviceattribute.StandardDeviceAttributeNUMANode, *node)
	}
}
