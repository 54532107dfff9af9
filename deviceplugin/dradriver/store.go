package dradriver

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/serve"
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

// Record says what a claim has. It is kept in the claim's CDI spec.
type Record struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Devices   []Held    `json:"devices"`
	// Written is when the claim had been prepared.
	Written time.Time `json:"written"`
}

// Wish is a device that is allocated to a claim.
type Wish struct {
	Request string `json:"request"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	Share   string `json:"share,omitempty"`
	// Admin: the claim has it for administration, beside those whose device it is.
	Admin bool `json:"admin,omitempty"`
}

// names lists the devices for people.
func (r Record) names() string {
	var out []string
	for _, h := range r.Devices {
		out = append(out, h.Device)
	}
	return strings.Join(out, ", ")
}

// Held is a device that a claim has.
type Held struct {
	Wish
	// ID says which hardware it is: a UUID, a PCI address.
	ID string `json:"uuid"`
	// Parent is the ID of the device of which it is a part, made for claims; "": it was not made.
	Parent string `json:"parent,omitempty"`
	// Nodes are device nodes that the device has besides its parent's.
	Nodes []string `json:"nodes,omitempty"`
}

// store holds the CDI specs of prepared claims in a directory. It has no other state.
type store struct {
	dir, driver string
	based       bool // there is a spec of what every container gets
}

func (s store) vendor() string           { return "numalet." + s.driver }
func (s store) kind(class string) string { return s.vendor() + "/" + class }
func (s store) prefix() string           { return s.vendor() + "-" + claimClass + "_" }

// ids returns the CDI ids of the claim's n-th device.
func (s store) ids(uid types.UID, n int) (ids []string) {
	if s.based {
		ids = []string{s.kind(baseClass) + "=" + baseDevice}
	}
	return append(ids, s.kind(claimClass)+"="+deviceName(uid, n))
}

func deviceName(uid types.UID, n int) string { return fmt.Sprintf("%s-%d", uid, n) }

// load returns all records by claim. Files that are none are named in strange.
func (s store) load() (all Records, strange []string, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("read records of claims: %w", err)
	}
	all = Records{}
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

func (store) spec(path string) (spec specs.Spec, err error) {
	raw, err := files.Read(path, maxSpec)
	if err != nil {
		return spec, err
	}
	err = json.Unmarshal(raw, &spec)
	return spec, err
}

func (s store) read(path string) (r Record, err error) {
	spec, err := s.spec(path)
	if err != nil {
		return r, err
	}
	err = json.Unmarshal([]byte(spec.Annotations[annotation]), &r)
	return r, err
}

// write records a claim, together with what containers get for its devices, in their order.
func (s store) write(r Record, edits []specs.ContainerEdits) error {
	if wrong := validation.IsDNS1123Label(string(r.UID)); wrong != nil {
		return fmt.Errorf("the claim's UID %q: %s", r.UID, wrong[0])
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	spec := &specs.Spec{Kind: s.kind(claimClass), Devices: s.devices(r, edits),
		Annotations: map[string]string{annotation: string(raw)}}
	return serve.WriteSpec(s.dir, s.file(r.UID), spec)
}

func (store) devices(r Record, edits []specs.ContainerEdits) (out []specs.Device) {
	for n, e := range edits {
		out = append(out, specs.Device{Name: deviceName(r.UID, n), ContainerEdits: e})
	}
	return out
}

// gives reports whether the claim's spec has these edits.
func (s store) gives(r Record, edits []specs.ContainerEdits) bool {
	spec, err := s.spec(filepath.Join(s.dir, s.file(r.UID)))
	return err == nil && reflect.DeepEqual(spec.Devices, s.devices(r, edits))
}

// remove forgets a claim. It is no error if there is none.
func (s store) remove(uid types.UID) error {
	return files.Remove(filepath.Join(s.dir, s.file(uid)))
}

func (s store) file(uid types.UID) string { return s.prefix() + string(uid) + ".json" }

// writeBase writes the spec of what every container gets.
func (s store) writeBase(edits specs.ContainerEdits) error {
	return serve.WriteSpec(s.dir, s.vendor()+"-"+baseClass+".json", &specs.Spec{
		Kind: s.kind(baseClass), Devices: []specs.Device{{Name: baseDevice, ContainerEdits: edits}},
	})
}

// Records has the record of each prepared claim.
type Records map[types.UID]Record

// Held yields what each claim has, with the claim.
func (all Records) Held() iter.Seq2[Record, Held] {
	return func(yield func(Record, Held) bool) {
		for _, r := range all {
			for _, h := range r.Devices {
				if !yield(r, h) {
					return
				}
			}
		}
	}
}

// Has reports whether a claim has that hardware.
func (all Records) Has(id string) bool {
	for _, h := range all.Held() {
		if h.ID == id {
			return true
		}
	}
	return false
}

// alone returns those of the devices that no claim has.
func (all Records) alone(devices []Held) (out []Held) {
	for _, h := range devices {
		if !all.Has(h.ID) {
			out = append(out, h)
		}
	}
	return out
}
