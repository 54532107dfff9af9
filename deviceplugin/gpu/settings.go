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
	MIGMixed  MIGStrategy = "mixed"  // a resource for each profile, and undivided GPUs
	// migByClaims is MIGMixed where claims divide GPUs: an undivided one is nothing to complain of.
	migByClaims MIGStrategy = "by claims"
)

// ListStrategy says how a container runtime learns a container's devices.
type ListStrategy string

// The strategies, as NVIDIA's plugin names them.
const (
	EnvVar         ListStrategy = "envvar"
	VolumeMounts   ListStrategy = "volume-mounts"
	CDIAnnotations ListStrategy = "cdi-annotations"
	CDICRI         ListStrategy = "cdi-cri"
)

// listOrder returns the strategies in the order of their application: volume-mounts sets the
// variable last.
func listOrder() []ListStrategy {
	return []ListStrategy{EnvVar, VolumeMounts, CDIAnnotations, CDICRI}
}

// IDStrategy says what names a device in answers.
type IDStrategy string

// The strategies, as NVIDIA's plugin names them.
const (
	ByUUID  IDStrategy = "uuid"
	ByIndex IDStrategy = "index"
)

// Settings hold what a person can set.
type Settings struct {
	MIG    MIGStrategy
	List   []ListStrategy
	ID     IDStrategy
	Shared []Sharing
	Health HealthRules
	// PassDeviceSpecs also lists device nodes in answers.
	PassDeviceSpecs bool
	// FailOnInit ends the plugin if there is no driver when it starts.
	FailOnInit bool
	// DevRoot is the directory on the host that has /dev.
	DevRoot string
	CDI     CDISettings
	// Extras go to all containers with GPUs. IMEXRequired refuses containers if the host has no
	// IMEX channel.
	Extras       []Extra
	IMEXRequired bool
	// MPSRoot is the directory on the host with the pipes of the MPS control daemons.
	MPSRoot string
}

// CDISettings configure CDI specs.
type CDISettings struct {
	// Dir is the directory for specs.
	Dir string
	// AnnotationPrefix is the prefix of CDI annotations.
	AnnotationPrefix string
	// Files makes specs name the driver's files.
	Files DriverFiles
}

// DriverFiles says where to find the driver's libraries and programs for CDI.
type DriverFiles struct {
	// Wanted: specs name them.
	Wanted bool
	// Root is the driver's root on the host, SeenAt its path in the plugin; "": the same.
	Root, SeenAt string
	// Hook is the path of nvidia-cdi-hook or nvidia-ctk on the host.
	Hook string
}

// Sharing offers each device of a resource several times.
type Sharing struct {
	// Resource names the shared devices' resource: "nvidia.com/gpu".
	Resource string
	// As is the resource that offers the shares.
	As       string
	Replicas int
	// Devices lists the indexes or UUIDs of the shared devices; nil: all. The others are offered
	// whole, under Resource.
	Devices []string
	// Count is the number of shared devices if Devices is nil; 0: all.
	Count int
	// OnlyOne refuses requests for several shares, which do not give several GPUs.
	OnlyOne bool
	// Packed gives a container several shares of as few devices as possible instead of as many as
	// possible.
	Packed bool
	// MPS: the devices are shared through CUDA's Multi-Process Service.
	MPS bool
}

// Defaults returns the settings of NVIDIA's plugin.
func Defaults() Settings {
	return Settings{
		MIG: MIGNone, List: []ListStrategy{EnvVar}, ID: ByUUID, DevRoot: "/",
		CDI: CDISettings{Dir: "/var/run/cdi", AnnotationPrefix: "cdi.k8s.io/",
			Files: DriverFiles{Root: "/", Hook: "/usr/bin/nvidia-cdi-hook"}},
		MPSRoot: "/run/nvidia/mps",
		Health:  HealthRules{RecoverAfter: 10 * time.Minute},
	}
}

// maxReplicas bounds the shares of one device.
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
				"rename these, to tell them from the others", share.Resource))
		}
		if names[share.As] && share.As != share.Resource {
			errs = append(errs, fmt.Errorf("sharing of %s: the name %s is taken", share.Resource,
				share.As))
		}
		names[share.Resource], names[share.As] = true, true
	}
	return errors.Join(errs...)
}

// usesCDI reports whether specs have to be written.
func (s Settings) usesCDI() bool {
	return slices.Contains(s.List, CDIAnnotations) || slices.Contains(s.List, CDICRI)
}

// sharing returns how the devices of a resource are shared; nil: they are not.
func (s Settings) sharing(resource string) *Sharing {
	at := slices.IndexFunc(s.Shared, func(o Sharing) bool { return o.Resource == resource })
	if at < 0 {
		return nil
	}
	return &s.Shared[at]
}
