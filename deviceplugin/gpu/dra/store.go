package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/internal/files"
)

const (
	// annotation holds the record in the CDI spec of a claim.
	annotation = "numalet.io/claim"
	claimClass = "claim"
	// baseClass is the class of what every container with a device gets.
	baseClass  = "driver"
	baseDevice = "all"
	// maxSpec bounds a claim's CDI spec in bytes.
	maxSpec = 1 << 20
)

// record says what a claim has. It is kept in the claim's CDI spec.
type record struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Devices   []held    `json:"devices"`
	// Written is when the claim had been prepared.
	Written time.Time `json:"written"`
}

// wish is a device that is allocated to a claim.
type wish struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	Share   string `json:"share,omitempty"`
	// Admin: the claim has it for administration, beside those whose device it is.
	Admin bool `json:"admin,omitempty"`
}

// names lists the devices for people.
func (r record) names() string {
	var out []string
	for _, h := range r.Devices {
		out = append(out, h.Device)
	}
	return strings.Join(out, ", ")
}

// held is a device that a claim has.
type held struct {
	wish
	// UUID is that of the GPU or MIG device.
	UUID string `json:"uuid"`
	// Parent is the UUID of the GPU if the MIG device was made for claims; "": it was not.
	Parent string `json:"parent,omitempty"`
	// Nodes are the device nodes of a MIG device besides its GPU's.
	Nodes []string `json:"nodes,omitempty"`
}

// store holds the CDI specs of prepared claims in a directory. It has no other state.
type store struct {
	dir, driver string
}

func (s store) vendor() string           { return "numalet." + s.driver }
func (s store) kind(class string) string { return s.vendor() + "/" + class }
func (s store) prefix() string           { return s.vendor() + "-" + claimClass + "_" }

// ids returns the CDI ids of the claim's n-th device.
func (s store) ids(uid types.UID, n int) []string {
	return []string{s.kind(baseClass) + "=" + baseDevice,
		fmt.Sprintf("%s=%s-%d", s.kind(claimClass), uid, n)}
}

// load returns all records by claim. Files that are none are named in strange.
func (s store) load() (all map[types.UID]record, strange []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("read records of claims: %w", err)
	}
	all = map[types.UID]record{}
	for _, e := range entries {
		uid, ours := strings.CutPrefix(e.Name(), s.prefix())
		if !ours {
			continue
		}
		uid = strings.TrimSuffix(uid, ".json")
		r, err := s.read(filepath.Join(s.dir, e.Name()))
		if err == nil && string(r.UID) == uid {
			all[r.UID] = r
		} else {
			strange = append(strange, e.Name())
		}
	}
	return all, strange, nil
}

func (s store) read(path string) (r record, err error) {
	raw, err := files.Read(path, maxSpec)
	if err != nil {
		return r, err
	}
	var spec specs.Spec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return r, err
	}
	return r, json.Unmarshal([]byte(spec.Annotations[annotation]), &r)
}

// write records a claim, together with what containers get for its devices, in their order.
func (s store) write(r record, edits []specs.ContainerEdits) error {
	if wrong := validation.IsDNS1123Label(string(r.UID)); wrong != nil {
		return fmt.Errorf("the claim's UID %q: %s", r.UID, wrong[0])
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	spec := &specs.Spec{Kind: s.kind(claimClass),
		Annotations: map[string]string{annotation: string(raw)}}
	for n, e := range edits {
		spec.Devices = append(spec.Devices,
			specs.Device{Name: fmt.Sprintf("%s-%d", r.UID, n), ContainerEdits: e})
	}
	return gpu.WriteSpec(s.dir, s.file(r.UID), spec)
}

// remove forgets a claim. It is no error if there is none.
func (s store) remove(uid types.UID) error {
	return files.Remove(filepath.Join(s.dir, s.file(uid)))
}

func (s store) file(uid types.UID) string { return s.prefix() + string(uid) + ".json" }

// writeBase writes the spec of what every container gets. Its device needs an edit: the variable
// keeps NVIDIA's own runtime from adding GPUs that an image asks for.
func (s store) writeBase(common specs.ContainerEdits) error {
	void := specs.ContainerEdits{Env: []string{"NVIDIA_VISIBLE_DEVICES=void"}}
	return gpu.WriteSpec(s.dir, s.vendor()+"-"+baseClass+".json", &specs.Spec{
		Kind: s.kind(baseClass), ContainerEdits: common,
		Devices: []specs.Device{{Name: baseDevice, ContainerEdits: void}},
	})
}

// holders returns the claims that have the device, other than this one.
func holders(all map[types.UID]record, device string, but types.UID) (out []record) {
	for _, r := range all {
		has := slices.ContainsFunc(r.Devices, func(h held) bool { return h.Device == device })
		if has && r.UID != but {
			out = append(out, r)
		}
	}
	return out
}
