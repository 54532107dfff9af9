package explain

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/placement/allocation"
	units "github.com/numalet/numalet/internal/quantity"
)

// isMemory reports whether the resource is memory or huge pages, which are counted in bytes.
func isMemory(name string) bool {
	return name == string(v1.ResourceMemory) || strings.HasPrefix(name, v1.ResourceHugePagesPrefix)
}

// isCPU reports whether the resource is exclusive CPUs, isolated or not.
func isCPU(name string) bool { return name == cpu || name == allocation.ResourceIsolated }

// number formats an amount of a resource.
func number(name string, n int) string {
	if isMemory(name) {
		return resource.NewQuantity(int64(n), resource.BinarySI).String()
	}
	return fmt.Sprint(n)
}

// amount formats a number with its resource: "1 exclusive CPU", "3 example.com/gpu", "2Gi memory".
func amount(name string, n int) string {
	if isCPU(name) && n == 1 {
		return strings.TrimSuffix("1 "+label(name), "s")
	}
	return number(name, n) + " " + label(name)
}

// label returns a resource's name for texts.
func label(name string) string {
	switch name {
	case cpu:
		return "exclusive CPUs"
	case allocation.ResourceIsolated:
		return "isolated CPUs"
	}
	return name
}

// step is the precision of the search for what would fit: for memory about a hundredth of the
// request, in whole pages.
func step(name string, count int) int {
	if !isMemory(name) {
		return 1
	}
	unit := 1 << 20
	if size, huge := units.PageSize(v1.ResourceName(name)); huge {
		unit = int(size)
	}
	for count/unit >= 128 {
		unit *= 2
	}
	return unit
}

// quantity converts a count to the quantity that a pod requests.
func quantity(name string, n int) resource.Quantity {
	if isMemory(name) {
		return *resource.NewQuantity(int64(n), resource.BinarySI)
	}
	return *resource.NewQuantity(int64(n), resource.DecimalSI)
}

// free says how much is free.
func free(name string, n int) string {
	if n == 0 {
		return "none is free"
	}
	return number(name, n) + " free"
}
