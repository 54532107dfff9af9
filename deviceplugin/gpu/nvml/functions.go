//go:build cgo

package nvml

import (
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Functions that libraries of older drivers lack. go-nvml binds a function when it is called, and a
// missing one ends the process: lookUp checks first.
const (
	migMode        = "nvmlDeviceGetMigMode"
	remappedRows   = "nvmlDeviceGetRemappedRows"
	memoryAffinity = "nvmlDeviceGetMemoryAffinity"
	remoteType     = "nvmlDeviceGetNvLinkRemoteDeviceType"
	fieldValues    = "nvmlDeviceGetFieldValues"
	architecture   = "nvmlDeviceGetArchitecture"
	// placements came with the last of the functions that divide GPUs at a place.
	placements = "nvmlDeviceCreateGpuInstanceWithPlacement"
)

// optional holds the functions called for each GPU, and what is unknown without them.
var optional = map[string]string{
	migMode:        "GPUs are not seen as divided",
	remappedRows:   "replaced memory rows are not seen",
	memoryAffinity: "the driver's own NUMA nodes are not compared",
	remoteType:     "NVLinks are not seen",
	fieldValues:    "the speed of NVLinks and the driver's advice are not known",
	architecture:   "the GPUs' architecture is not known",
	placements:     "claims cannot divide GPUs",
}

// functions says of each optional function whether this driver's library has it.
type functions map[string]bool

// lookUp asks a library for its optional functions.
func lookUp(library nvml.Interface) functions {
	f := functions{}
	for name := range optional {
		f[name] = library.Extensions().LookupSymbol(name) == nil
	}
	return f
}

// lacking says, for people, what this driver does not tell about GPUs.
func (f functions) lacking() (out []string) {
	for name, without := range optional {
		if !f[name] {
			out = append(out, "the driver's library has no "+name+": "+without)
		}
	}
	slices.Sort(out)
	return out
}
