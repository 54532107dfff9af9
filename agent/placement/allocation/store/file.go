package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/files"
)

// FileName is the state file in the agent's root directory.
const FileName = "numalet_state"

// Versions of the file. Since version 3 it is a journal.
const (
	oldestVersion  = 1
	journalVersion = 3
)

// formatVersion is the version that this agent writes, and the newest that it reads.
func formatVersion() int { return max(journalVersion, allocation.FormatVersion()) }

// fileState is in the file's first line, beside the version. Each further line has a fileChange of
// the next generation; versions 1 and 2 have no further lines.
type fileState struct {
	Generation uint64           `json:"generation"`
	Pods       []allocation.Pod `json:"pods"`
	// PendingReleases: older agents ignore it, and assign these devices at once, like the kubelet.
	PendingReleases []allocation.PendingRelease `json:"owed,omitempty"`
}

// fileChange has the pods that this generation adds or replaces, the pods that it drops, and what
// releases are pending after it; an entry without ids has been heard of.
type fileChange struct {
	Generation      uint64                      `json:"generation"`
	Put             []allocation.Pod            `json:"put,omitempty"`
	Drop            []types.UID                 `json:"drop,omitempty"`
	PendingReleases []allocation.PendingRelease `json:"owed,omitempty"`
}

// encode returns the file's first line; the same state always gives the same bytes.
func encode(s allocation.State) ([]byte, error) {
	out := fileState{Generation: s.Version, Pods: s.List(), PendingReleases: s.PendingReleases}
	slices.SortFunc(out.Pods, func(a, b allocation.Pod) int {
		return strings.Compare(string(a.UID), string(b.UID))
	})
	return encodeLine(fmt.Sprintf(`"version":%d,`, formatVersion()), out)
}

// encodeChange returns the line of next's generation.
func encodeChange(next allocation.State, changes []allocation.Change) ([]byte, error) {
	out := fileChange{Generation: next.Version, PendingReleases: next.ReleasesBy(changes)}
	seen := sets.New[types.UID]()
	for _, c := range changes {
		uid := cmp.Or(c.Drop, c.Put.UID)
		if uid == "" || seen.Has(uid) {
			continue // next has the last of them
		}
		seen.Insert(uid)
		if p, held := next.Pods[uid]; held {
			out.Put = append(out.Put, p)
		} else {
			out.Drop = append(out.Drop, uid)
		}
	}
	return encodeLine("", out)
}

func encodeLine(version string, value any) ([]byte, error) {
	line, err := files.EncodeLine(version, value)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	return line, nil
}

// decode reads the file. The error about a newer version says what to do. decode ignores a last
// line without a line end: a crash cut that write off before its commit returned.
func decode(raw []byte) (allocation.State, error) {
	first, rest, _ := bytes.Cut(raw, []byte("\n"))
	begin, err := decodeLine(first)
	if err != nil {
		return allocation.State{}, err
	}
	if begin.Version < oldestVersion {
		return allocation.State{}, fmt.Errorf("corrupt state file: version %d", begin.Version)
	}
	if begin.Version < journalVersion && len(bytes.TrimSpace(rest)) > 0 {
		return allocation.State{}, errors.New("corrupt state file: something follows its end")
	}
	var in fileState
	if err := json.Unmarshal(begin.Data, &in); err != nil {
		return allocation.State{}, fmt.Errorf("corrupt state file: %w", err)
	}
	state := allocation.State{
		Version: in.Generation, Pods: make(map[types.UID]allocation.Pod, len(in.Pods)),
	}
	if err := putDecoded(&state, in.Pods, in.PendingReleases); err != nil {
		return allocation.State{}, err
	}
	for line := range bytes.Lines(rest) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		if err := decodeChange(&state, line); err != nil {
			return allocation.State{}, err
		}
	}
	return state, nil
}

// decodeLine reads a line. Its version is 0 except in the first line.
func decodeLine(raw []byte) (line files.Line, err error) {
	if err := json.Unmarshal(raw, &line); err != nil {
		return line, fmt.Errorf("corrupt state file: %w", err)
	}
	if line.Version > formatVersion() {
		return line, fmt.Errorf("state file of version %d, this agent reads versions %d to %d: "+
			"to have it back, put it in its place again and run the newer agent that wrote it",
			line.Version, oldestVersion, formatVersion())
	}
	if sum := line.Sum(); sum != line.Checksum {
		return line, fmt.Errorf("corrupt state file: checksum is %d, the file says %d",
			sum, line.Checksum)
	}
	return line, nil
}

// decodeChange applies the line of the next generation to the state.
func decodeChange(s *allocation.State, raw []byte) error {
	line, err := decodeLine(raw)
	if err != nil {
		return err
	}
	var in fileChange
	if err := json.Unmarshal(line.Data, &in); err != nil {
		return fmt.Errorf("corrupt state file: %w", err)
	}
	if in.Generation != s.Version+1 {
		return fmt.Errorf("corrupt state file: generation %d follows %d", in.Generation, s.Version)
	}
	s.Version = in.Generation
	for _, uid := range in.Drop {
		delete(s.Pods, uid)
	}
	return putDecoded(s, in.Put, in.PendingReleases)
}

func putDecoded(s *allocation.State, pods []allocation.Pod, pending []allocation.PendingRelease) error {
	for _, p := range pods {
		s.Pods[p.UID] = p
	}
	for _, o := range pending {
		if o.UID == "" || o.Resource == "" {
			return errors.New("corrupt state file: a pending release has no plugin")
		}
		s.PutRelease(o)
	}
	return nil
}
