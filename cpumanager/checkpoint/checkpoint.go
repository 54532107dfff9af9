// Package checkpoint encodes and decodes cpu_manager_state, the kubelet's file of exclusive CPUs.
// It is imported when a node switches over, and exported so that it can switch back.
//
// The file is JSON. Its versions share their first fields, so that an older kubelet reads a newer
// file:
//
//	V2  policyName, defaultCpuSet, entries, checksum
//	V3  the same and podEntries, under one checksum
//	V4  V2's fields with V2's checksum, and everything again as JSON text in data, which counts and
//	    has its own dataChecksum
//
// The checksums are FNV-32a over Go's rendering of the value by k8s.io/utils/dump.ForHash, with
// the names of the kubelet's own types in it; see checksum.go.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/internal/checksum"
	"github.com/numalet/numalet/topology"
)

// FileName is the name of the file in the kubelet's root directory.
const FileName = "cpu_manager_state"

// ErrCorrupt says that a checksum does not match the data.
var ErrCorrupt = errors.New("checkpoint is corrupted")

// State is the content of the file.
type State struct {
	// Policy is "none" or "static".
	Policy string
	// Default holds the CPUs of containers without exclusive ones; the kubelet leaves it empty with
	// policy none.
	Default cpuset.CPUSet
	// Entries holds the CPUs of containers, by pod UID and container name.
	Entries map[string]map[string]cpuset.CPUSet
	// PodEntries holds CPUs that belong to a pod as a whole, by pod UID; containers have parts of them.
	PodEntries map[string]cpuset.CPUSet
	// Baselines holds the CPUs that containers started with, if any has others since; nil: all have what they
	// started with.
	Baselines map[string]map[string]cpuset.CPUSet
}

// fields is the content of data in V4, and of the top level in every version.
type fields struct {
	Policy     string              `json:"policyName"`
	Default    string              `json:"defaultCpuSet"`
	Entries    entries             `json:"entries,omitempty"`
	PodEntries map[string]podEntry `json:"podEntries,omitempty"`
	// Baselines are in data only, and where there is data so are PodEntries.
	Baselines map[string]map[string]baseline `json:"baselines,omitempty"`
}

type entries = map[string]map[string]string

type podEntry struct {
	CPUs string `json:"cpuSet"`
}

type baseline struct {
	CPUs string `json:"baseline"`
}

type file struct {
	fields
	Checksum     uint64 `json:"checksum"`
	Data         string `json:"data,omitempty"`
	DataChecksum uint64 `json:"dataChecksum,omitempty"`
}

// Encode returns a file of version 4; the same state gives the same bytes.
func Encode(s State) ([]byte, error) {
	out := fields{Policy: s.Policy, Default: s.Default.String(), Entries: entries{}}
	for uid, containers := range s.Entries {
		for name, cpus := range containers {
			put(&out.Entries, uid, name, cpus.String())
		}
	}
	whole := out
	for uid, containers := range s.Baselines {
		for name, cpus := range containers {
			put(&whole.Baselines, uid, name, baseline{cpus.String()})
		}
	}
	for uid, cpus := range s.PodEntries {
		if whole.PodEntries == nil {
			whole.PodEntries = map[string]podEntry{}
		}
		whole.PodEntries[uid] = podEntry{cpus.String()}
	}
	data, err := json.Marshal(whole)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", FileName, err)
	}
	raw, err := json.Marshal(file{
		fields: out, Checksum: checksumV2(out),
		Data: string(data), DataChecksum: checksum.Of(string(data)),
	})
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", FileName, err)
	}
	return raw, nil
}

// put sets what a container of a pod has.
func put[T any](in *map[string]map[string]T, uid, container string, it T) {
	if *in == nil {
		*in = map[string]map[string]T{}
	}
	if (*in)[uid] == nil {
		(*in)[uid] = map[string]T{}
	}
	(*in)[uid][container] = it
}

// Decode reads a file of version 4, 3 or 2. The error is ErrCorrupt if a checksum is wrong.
func Decode(raw []byte) (State, error) {
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return State{}, fmt.Errorf("decode %s: %w", FileName, err)
	}
	in, err := f.trusted()
	if err != nil {
		return State{}, fmt.Errorf("decode %s: %w", FileName, err)
	}
	state, err := in.parse()
	if err != nil {
		return State{}, fmt.Errorf("decode %s: %w", FileName, err)
	}
	return state, nil
}

// trusted returns the fields that a checksum verifies. If there is data, nothing else counts.
func (f file) trusted() (fields, error) {
	if f.Data != "" {
		if sum := checksum.Of(f.Data); sum != f.DataChecksum {
			return fields{}, fmt.Errorf("%w: data has checksum %d, the file says %d",
				ErrCorrupt, sum, f.DataChecksum)
		}
		var in fields
		if err := json.Unmarshal([]byte(f.Data), &in); err != nil {
			return fields{}, fmt.Errorf("data: %w", err)
		}
		return in, nil
	}
	if f.DataChecksum != 0 {
		return fields{}, fmt.Errorf("%w: there is a dataChecksum and no data", ErrCorrupt)
	}
	if f.Policy == "" {
		return fields{}, fmt.Errorf("%w: it names no policy", ErrCorrupt)
	}
	if f.Entries == nil {
		f.Entries = entries{} // the kubelet hashes an empty map if the file has none
	}
	// Like the kubelet, accept a file of version 2 without a checksum.
	if len(f.PodEntries) == 0 && (f.Checksum == 0 || f.Checksum == checksumV2(f.fields)) {
		return f.fields, nil
	}
	sum, err := checksumV3(f.fields)
	if err != nil {
		return fields{}, err
	}
	if sum != f.Checksum {
		return fields{}, fmt.Errorf("%w: the content has checksum %d, the file says %d",
			ErrCorrupt, sum, f.Checksum)
	}
	return f.fields, nil
}

func (in fields) parse() (State, error) {
	def, err := topology.ParseCPUs(in.Default)
	if err != nil {
		return State{}, fmt.Errorf("defaultCpuSet %q: %w", in.Default, err)
	}
	s := State{Policy: in.Policy, Default: def, Entries: map[string]map[string]cpuset.CPUSet{}}
	for uid, containers := range in.Entries {
		for name, text := range containers {
			cpus, err := topology.ParseCPUs(text)
			if err != nil {
				return State{}, fmt.Errorf("pod %s container %s: cpus %q: %w", uid, name, text, err)
			}
			put(&s.Entries, uid, name, cpus)
		}
	}
	for uid, containers := range in.Baselines {
		for name, text := range containers {
			cpus, err := topology.ParseCPUs(text.CPUs)
			if err != nil {
				return State{}, fmt.Errorf("pod %s container %s: baseline %q: %w", uid, name, text.CPUs, err)
			}
			put(&s.Baselines, uid, name, cpus)
		}
	}
	for uid, entry := range in.PodEntries {
		cpus, err := topology.ParseCPUs(entry.CPUs)
		if err != nil {
			return State{}, fmt.Errorf("pod %s: cpus %q: %w", uid, entry.CPUs, err)
		}
		if s.PodEntries == nil {
			s.PodEntries = map[string]cpuset.CPUSet{}
		}
		s.PodEntries[uid] = cpus
	}
	return s, nil
}
