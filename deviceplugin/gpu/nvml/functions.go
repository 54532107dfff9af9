//go:build cgo

package nvml

import "slices"

// Functions that libraries of older drivers lack. go-nvml binds a function when it is called, and a
// missing one ends the process: lookUp checks first.
const (
	migMode        = "nvmlDeviceGetMigMode"
	remappedRows   = "nvmlDeviceGetRemappedRows"
	memoryAffinity = "nvmlDeviceGetMemoryAffinity"
	remoteType     = "nvmlDeviceGetNvLinkRemoteDeviceType"
	fieldValues    = "nvmlDeviceGetFieldValues"
)

// optional holds the functions called for each GPU, and what is unknown without them.
var optional = map[string]string{
	migMode:        "GPUs are not seen as divided",
	remappedRows:   "replaced memory rows are not seen",
	memoryAffinity: "the driver's own NUMA nodes are not compared",
	remoteType:     "NVLinks are not seen",
	fieldValues:    "the speed of NVLinks and the driver's advice are not known",
}

// lookUp finds out which optional functions this driver's library has.
func (s *session) lookUp() {
	s.lacks = map[string]bool{}
	for name := range optional {
		s.lacks[name] = s.Library.Extensions().LookupSymbol(name) != nil
	}
}

// has reports whether a function may be called.
func (s *session) has(name string) bool { return !s.lacks[name] }

// lacking says, for people, what this driver does not tell about GPUs.
func (s *session) lacking() (out []string) {
	for name, without := range optional {
		if s.lacks[name] {
			out = append(out, "the driver's library has no "+name+": "+without)
		}
	}
	slices.Sort(out)
	return out
}
