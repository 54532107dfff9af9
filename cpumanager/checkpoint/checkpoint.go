// Package checkpoint encodes and decodes cpu_manager_state, the file in which the kubelet keeps
// who has CPUs of its own: it is imported when a node is switched over, and exported so that it
// can be switched back.
//
// The file is JSON. Its versions share their first fields, so that an older kubelet reads a newer
// file:
//
//	V2  policyName, defaultCpuSet, entries, checksum
//	V3  and podEntries, under the same checksum
//	V4  V2's fields with V2's checksum, and all of it once more as JSON text in data, which has a
//	    dataChecksum of its own and is what counts
//
// The checksums are FNV-32a over Go's rendering of the value by k8s.io/utils/dump.ForHash, with
// the names of the kubelet's own types in it; see checksum.go.
package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/checksum"
)

// FileName is the file's name in the kubelet's root directory.
const FileName = "cpu_manager_state"

// ErrCorrupt says that a checksum does not fit the data.
var ErrCorrupt = errors.New("checkpoint is corrupted")

// State is what the file says.
type State struct {
	// Policy is "none" or "static".
	Policy string
	// Default is where containers without CPUs of their own run; the kubelet leaves it empty with
	// policy none.
	Default cpuset.CPUSet
	// Entries are the CPUs of containers, by pod UID and container name.
	Entries map[string]map[string]cpuset.CPUSet
	// PodEntries are CPUs that belong to a pod as a whole, by pod UID. Encode does not write them.
	PodEntries map[string]cpuset.CPUSet
}

// fields are what data has in V4, and the top level in every version.
type fields struct {
	Policy     string              `json:"policyName"`
	Default    string              `json:"defaultCpuSet"`
	Entries    entries             `json:"entries,omitempty"`
	PodEntries map[string]podEntry `json:"podEntries,omitempty"`
}

type entries = map[string]map[string]string

type podEntry struct {
	CPUs string `json:"cpuSet"`
}

type file struct {
	fields
	Checksum     uint64 `json:"checksum"`
	Data         string `json:"data,omitempty"`
	DataChecksum uint64 `json:"dataChecksum,omitempty"`
}

// Encode returns a file of version 4, the same bytes for the same state.
func Encode(s State) ([]byte, error) {
	out := fields{Policy: s.Policy, Default: s.Default.String(), Entries: entries{}}
	for uid, containers := range s.Entries {
		for name, cpus := range containers {
			if out.Entries[uid] == nil {
				out.Entries[uid] = map[string]string{}
			}
			out.Entries[uid][name] = cpus.String()
		}
	}
	data, err := json.Marshal(out)
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

// Decode reads a file of version 4, 3 or 2. The error is ErrCorrupt when a checksum is wrong.
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

// trusted are the fields that a checksum vouches for. Where there is data, nothing else counts.
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
		f.Entries = entries{} // the kubelet hashes an empty map where the file has none
	}
	// The kubelet accepts a file of version 2 without a checksum, and so do we.
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
			if s.Entries[uid] == nil {
				s.Entries[uid] = map[string]cpuset.CPUSet{}
			}
			s.Entries[uid][name] = cpus
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
