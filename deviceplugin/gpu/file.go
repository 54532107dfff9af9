package gpu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	strictjson "sigs.k8s.io/json"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/strictyaml"
)

// file is NVIDIA's configuration file, version v1.
type file struct {
	Version   string    `json:"version"`
	Flags     fileFlags `json:"flags"`
	Resources any       `json:"resources"`
	Sharing   struct {
		TimeSlicing *fileSharing `json:"timeSlicing"`
		MPS         *fileSharing `json:"mps"`
	} `json:"sharing"`
	IMEX struct {
		ChannelIDs []int `json:"channelIDs"`
		Required   bool  `json:"required"`
	} `json:"imex"`
}

// fileFlags holds the flags by name.
type fileFlags struct {
	MIGStrategy             *string    `json:"migStrategy"`
	FailOnInitError         *bool      `json:"failOnInitError"`
	MPSRoot                 *string    `json:"mpsRoot"`
	NvidiaDriverRoot        *string    `json:"nvidiaDriverRoot"`
	NvidiaDevRoot           *string    `json:"nvidiaDevRoot"`
	GDRCopyEnabled          *bool      `json:"gdrcopyEnabled"`
	GDSEnabled              *bool      `json:"gdsEnabled"`
	MOFEDEnabled            *bool      `json:"mofedEnabled"`
	UseNodeFeatureAPI       *bool      `json:"useNodeFeatureAPI"`
	DeviceDiscoveryStrategy *string    `json:"deviceDiscoveryStrategy"`
	Plugin                  filePlugin `json:"plugin"`
	GFD                     any        `json:"gfd"`
}

type filePlugin struct {
	PassDeviceSpecs     *bool   `json:"passDeviceSpecs"`
	DeviceListStrategy  words   `json:"deviceListStrategy"`
	DeviceIDStrategy    *string `json:"deviceIDStrategy"`
	CDIAnnotationPrefix *string `json:"cdiAnnotationPrefix"`
	NvidiaCTKPath       *string `json:"nvidiaCTKPath"`
	ContainerDriverRoot *string `json:"containerDriverRoot"`
}

type fileSharing struct {
	RenameByDefault            bool           `json:"renameByDefault"`
	FailRequestsGreaterThanOne *bool          `json:"failRequestsGreaterThanOne"`
	Resources                  []fileReplicas `json:"resources"`
}

type fileReplicas struct {
	Name     string  `json:"name"`
	Rename   string  `json:"rename"`
	Devices  devices `json:"devices"`
	Replicas int     `json:"replicas"`
	// MemoryLimit is the MPS control daemon's business.
	MemoryLimit any `json:"memoryLimit"`
}

// words is one word or several.
type words []string

// UnmarshalJSON implements json.Unmarshaler.
func (w *words) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(w))
}

// devices is "all", a number, or a list of indexes and UUIDs.
type devices struct {
	list  []string
	count int
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *devices) UnmarshalJSON(text []byte) error {
	var all string
	if json.Unmarshal(text, &all) == nil && all == "all" || string(text) == "null" {
		return nil
	}
	if json.Unmarshal(text, &d.count) == nil {
		if d.count < 1 {
			return fmt.Errorf("devices %s: want a number of 1 or more", text)
		}
		return nil
	}
	var list []any
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("devices %s: want all, a number, or a list of indexes and UUIDs", text)
	}
	d.list = []string{}
	for _, one := range list {
		d.list = append(d.list, fmt.Sprint(one))
	}
	return nil
}

// maxFile bounds the file in bytes, mostUnknown the unknown fields that are named.
const (
	maxFile     = 1 << 20
	mostUnknown = 10
)

// readFile reads a configuration file; unused names the parts that have no effect.
func readFile(name string) (f file, unused []string, err error) {
	raw, err := files.ReadNamed(name, maxFile)
	if err != nil {
		return f, nil, fmt.Errorf("read configuration: %w", err)
	}
	text, err := strictyaml.ToJSON(raw, true)
	if err != nil {
		return f, nil, fmt.Errorf("configuration %s: not YAML: %w", name, err)
	}
	unknown, err := strictjson.UnmarshalStrict(text, &f)
	if err != nil {
		return f, nil, fmt.Errorf("configuration %s: %w", name, err)
	}
	for _, field := range unknown[:min(len(unknown), mostUnknown)] { // fields of other versions
		unused = append(unused, field.Error())
	}
	if cmp.Or(f.Version, "v1") != "v1" {
		return f, nil, fmt.Errorf("configuration %s: version is %q, want v1", name, f.Version)
	}
	for what, is := range map[string]bool{
		"resources": f.Resources != nil, "flags.gfd": f.Flags.GFD != nil,
		"flags.useNodeFeatureAPI":       f.Flags.UseNodeFeatureAPI != nil,
		"flags.deviceDiscoveryStrategy": f.Flags.DeviceDiscoveryStrategy != nil,
	} {
		if is {
			unused = append(unused, what)
		}
	}
	slices.Sort(unused)
	return f, unused, nil
}

// sharing returns the file's sharing of resources.
func (f file) sharing() (out []Sharing, err error) {
	if f.Sharing.TimeSlicing != nil && f.Sharing.MPS != nil {
		return nil, fmt.Errorf("sharing: timeSlicing and mps are both given; choose one")
	}
	all, mps := f.Sharing.TimeSlicing, false
	if all == nil {
		all, mps = f.Sharing.MPS, true
	}
	if all == nil {
		return nil, nil
	}
	for _, r := range all.Resources {
		name := resourceName(r.Name)
		one := Sharing{
			Resource: name, As: cmp.Or(resourceName(r.Rename), name), Replicas: r.Replicas,
			Devices: r.Devices.list, Count: r.Devices.count, MPS: mps, OnlyOne: mps,
		}
		if all.RenameByDefault && r.Rename == "" {
			one.As += ".shared"
		}
		if all.FailRequestsGreaterThanOne != nil {
			one.OnlyOne = *all.FailRequestsGreaterThanOne
		}
		if one.Replicas == 1 { // no sharing
			continue
		}
		out = append(out, one)
	}
	return out, nil
}

// resourceName returns the full name of a resource: NVIDIA allows it without the domain.
func resourceName(name string) string {
	if name == "" || strings.Contains(name, "/") {
		return name
	}
	return vendor + name
}
