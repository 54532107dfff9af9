package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/numalet/numalet/topology/podspec"
)

// MIGStrategy says how MIG devices are offered.
type MIGStrategy string

// The strategies, as NVIDIA's plugin names them.
const (
	MIGNone   MIGStrategy = "none"   // GPUs only
	MIGSingle MIGStrategy = "single" // MIG devices of one profile in place of GPUs
	MIGMixed  MIGStrategy = "mixed"  // a resource for each profile, and GPUs that are not divided
)

// ListStrategy says how a container runtime learns which devices a container has.
type ListStrategy string

// The strategies, as NVIDIA's plugin names them.
const (
	EnvVar         ListStrategy = "envvar"
	VolumeMounts   ListStrategy = "volume-mounts"
	CDIAnnotations ListStrategy = "cdi-annotations"
	CDICRI         ListStrategy = "cdi-cri"
)

// listOrder is how strategies follow each other: volume-mounts have the last word on the variable.
func listOrder() []ListStrategy {
	return []ListStrategy{EnvVar, VolumeMounts, CDIAnnotations, CDICRI}
}

// IDStrategy says what names a device in the answers.
type IDStrategy string

// The strategies, as NVIDIA's plugin names them.
const (
	ByUUID  IDStrategy = "uuid"
	ByIndex IDStrategy = "index"
)

// Settings are what a person sets.
type Settings struct {
	MIG    MIGStrategy
	List   []ListStrategy
	ID     IDStrategy
	Shared []Sharing
	Health HealthRules
	// PassDeviceSpecs names device nodes in the answers too.
	PassDeviceSpecs bool
	// FailOnInit ends the plugin where there is no driver when it starts.
	FailOnInit bool
	// DevRoot is where /dev is on the host.
	DevRoot string
	CDI     CDISettings
	// Extras are given to all containers with GPUs. IMEXRequired refuses containers where the
	// host has no IMEX channel.
	Extras       []Extra
	IMEXRequired bool
	// MPSRoot is where the MPS control daemons have their pipes on the host.
	MPSRoot string
}

// CDISettings are what CDI's specs have, and where.
type CDISettings struct {
	// Dir is where specs are written to.
	Dir string
	// AnnotationPrefix is of CDI's annotations.
	AnnotationPrefix string
	// Files has specs name the driver's files.
	Files DriverFiles
}

// DriverFiles is where the driver's libraries and programs are found, for CDI.
type DriverFiles struct {
	// Wanted: they are looked for.
	Wanted bool
	// Root is the driver's root on the host, SeenAt where the plugin sees it; "" is the same.
	Root, SeenAt string
	// Hook is nvidia-cdi-hook, or nvidia-ctk, on the host.
	Hook string
}

// Sharing offers each device of a resource several times.
type Sharing struct {
	// Resource is whose devices are shared: "nvidia.com/gpu".
	Resource string
	// As is the name under which they are offered.
	As       string
	Replicas int
	// Devices are the indexes or UUIDs of those that are shared; nil is all. Others are offered
	// whole, under the name of the resource.
	Devices []string
	// Count is how many are shared when Devices is nil; 0 is all.
	Count int
	// OnlyOne refuses requests for several, which do not get several GPUs.
	OnlyOne bool
	// Packed: a container that asks for several gets them of as few devices as can be, and not of as
	// many.
	Packed bool
	// MPS: the devices are shared through CUDA's Multi-Process Service.
	MPS bool
}

// Defaults are the settings of NVIDIA's plugin.
func Defaults() Settings {
	return Settings{
		MIG: MIGNone, List: []ListStrategy{EnvVar}, ID: ByUUID, DevRoot: "/",
		CDI: CDISettings{Dir: "/var/run/cdi", AnnotationPrefix: "cdi.k8s.io/",
			Files: DriverFiles{Root: "/", Hook: "/usr/bin/nvidia-cdi-hook"}},
		MPSRoot: "/run/nvidia/mps",
		Health:  HealthRules{RecoverAfter: 10 * time.Minute},
	}
}

// maxReplicas bounds how often one device is offered.
const maxReplicas = 1000

func (s Settings) validate() error {
	var errs []error
	oneOf := func(what, got string, want ...string) {
		if !slices.Contains(want, got) {
			errs = append(errs, fmt.Errorf("%s %q: want %s", what, got, strings.Join(want, " or ")))
		}
	}
	oneOf("migStrategy", string(s.MIG), string(MIGNone), string(MIGSingle), string(MIGMixed))
	oneOf("deviceIDStrategy", string(s.ID), string(ByUUID), string(ByIndex))
	if len(s.List) == 0 {
		errs = append(errs, errors.New("deviceListStrategy: give at least one"))
	}
	for _, strategy := range s.List {
		oneOf("deviceListStrategy", string(strategy), string(EnvVar), string(VolumeMounts),
			string(CDIAnnotations), string(CDICRI))
	}
	names := map[string]bool{}
	for _, share := range s.Shared {
		for _, name := range []string{share.Resource, share.As} {
			if !podspec.IsExtended(name) {
				errs = append(errs, fmt.Errorf("sharing of %s: %q is no name of a resource: write "+
					"one such as %s", share.Resource, name, GPUResource))
				break
			}
		}
		if share.Replicas < 2 || share.Replicas > maxReplicas {
			errs = append(errs, fmt.Errorf("sharing of %s: replicas is %d, want 2 to %d",
				share.Resource, share.Replicas, maxReplicas))
		}
		if names[share.Resource] {
			errs = append(errs, fmt.Errorf("sharing of %s is given twice", share.Resource))
		}
		partial := share.Devices != nil || share.Count > 0
		if partial && share.As == share.Resource {
			errs = append(errs, fmt.Errorf("sharing of %s: only some of its devices are shared; "+
				"rename these, so that others can be told from them", share.Resource))
		}
		if names[share.As] && share.As != share.Resource {
			errs = append(errs, fmt.Errorf("sharing of %s: the name %s is taken", share.Resource,
				share.As))
		}
		names[share.Resource], names[share.As] = true, true
	}
	return errors.Join(errs...)
}

// usesCDI reports whether a spec has to be written.
func (s Settings) usesCDI() bool {
	return slices.Contains(s.List, CDIAnnotations) || slices.Contains(s.List, CDICRI)
}

// sharing is how the devices of a resource are shared; nil: they are not.
func (s Settings) sharing(resource string) *Sharing {
	at := slices.IndexFunc(s.Shared, func(o Sharing) bool { return o.Resource == resource })
	if at < 0 {
		return nil
	}
	return &s.Shared[at]
}
