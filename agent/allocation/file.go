package allocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

// FileName is the state file in the agent's root directory.
const FileName = "numalet_state"

// The versions of the file that this code reads; the newest is the one that it writes. Version 2
// has memory, which an agent that knows of none would lose without a word.
const (
	oldestVersion = 1
	formatVersion = 2
)

// errUnusable marks a state file that was moved aside.
var errUnusable = errors.New("unusable state file")

// envelope is the file: the CRC-32 (IEEE) is over the bytes of Data as they stand in the file.
type envelope struct {
	Version  int             `json:"version"`
	Checksum uint32          `json:"checksum"`
	Data     json.RawMessage `json:"data"`
}

type fileState struct {
	Generation uint64    `json:"generation"`
	Pods       []filePod `json:"pods"`
}

type filePod struct {
	UID        types.UID       `json:"uid"`
	Namespace  string          `json:"namespace"`
	Name       string          `json:"name"`
	BootID     string          `json:"bootID"`
	Containers []fileContainer `json:"containers"`
}

type fileContainer struct {
	Name    string       `json:"name"`
	CPUs    string       `json:"cpus,omitempty"`
	Memory  []fileBlock  `json:"memory,omitempty"`
	Devices []fileDevice `json:"devices,omitempty"`
}

type fileBlock struct {
	Nodes    string          `json:"nodes"`
	Resource v1.ResourceName `json:"resource"`
	Bytes    uint64          `json:"bytes"`
}

type fileDevice struct {
	Resource string   `json:"resource"`
	IDs      []string `json:"ids"`
	Nodes    []string `json:"nodes,omitempty"`
	Answer   []byte   `json:"answer"` // null: none yet; "" is an empty answer
}

// encode renders the state as the file's bytes, the same bytes for the same state.
func encode(s State) ([]byte, error) {
	out := fileState{Generation: s.Version, Pods: []filePod{}}
	for _, p := range s.Pods {
		out.Pods = append(out.Pods, encodePod(p))
	}
	slices.SortFunc(out.Pods, func(a, b filePod) int {
		return strings.Compare(string(a.UID), string(b.UID))
	})
	data, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	return json.Marshal(envelope{
		Version: formatVersion, Checksum: crc32.ChecksumIEEE(data), Data: data,
	})
}

func encodePod(p Pod) filePod {
	fp := filePod{UID: p.UID, Namespace: p.Namespace, Name: p.Name, BootID: p.BootID}
	for name, c := range p.Containers {
		if c.isEmpty() {
			continue
		}
		fp.Containers = append(fp.Containers, encodeContainer(name, c))
	}
	slices.SortFunc(fp.Containers, func(a, b fileContainer) int {
		return strings.Compare(a.Name, b.Name)
	})
	return fp
}

func encodeContainer(name string, c Container) fileContainer {
	fc := fileContainer{Name: name, CPUs: c.CPUs.String()}
	for _, b := range c.Memory {
		fc.Memory = append(fc.Memory, fileBlock{b.Nodes.String(), b.Resource, b.Size})
	}
	for _, d := range c.Devices {
		fd := fileDevice{Resource: d.Resource, IDs: d.IDs, Answer: d.Answer}
		for _, nodes := range d.Nodes {
			fd.Nodes = append(fd.Nodes, nodes.String())
		}
		fc.Devices = append(fc.Devices, fd)
	}
	return fc
}

// decode reads the file's bytes, of this version or an older one. The error of a newer version says
// what to do with it.
func decode(raw []byte) (State, error) {
	var env envelope
	if err := json.Unmarshal(raw, &env); err != nil {
		return State{}, fmt.Errorf("corrupt state file: %w", err)
	}
	if env.Version > formatVersion {
		return State{}, fmt.Errorf("state file of version %d, this agent reads versions %d to %d: "+
			"to have it back, put it in its place again and run the newer agent that wrote it",
			env.Version, oldestVersion, formatVersion)
	}
	if env.Version < oldestVersion {
		return State{}, fmt.Errorf("corrupt state file: version %d", env.Version)
	}
	if sum := crc32.ChecksumIEEE(env.Data); sum != env.Checksum {
		return State{}, fmt.Errorf("corrupt state file: checksum is %d, the file says %d",
			sum, env.Checksum)
	}
	var in fileState
	if err := json.Unmarshal(env.Data, &in); err != nil {
		return State{}, fmt.Errorf("corrupt state file: %w", err)
	}
	state := State{Version: in.Generation, Pods: make(map[types.UID]Pod, len(in.Pods))}
	for _, fp := range in.Pods {
		p, err := decodePod(fp)
		if err != nil {
			return State{}, fmt.Errorf("corrupt state file: pod %s: %w", fp.UID, err)
		}
		state.Pods[p.UID] = p
	}
	return state, nil
}

func decodePod(fp filePod) (Pod, error) {
	p := Pod{
		UID: fp.UID, Namespace: fp.Namespace, Name: fp.Name, BootID: fp.BootID,
		Containers: make(map[string]Container, len(fp.Containers)),
	}
	for _, fc := range fp.Containers {
		c, err := decodeContainer(fc)
		if err != nil {
			return Pod{}, fmt.Errorf("container %s: %w", fc.Name, err)
		}
		p.Containers[fc.Name] = c
	}
	return p, nil
}

func decodeContainer(fc fileContainer) (Container, error) {
	cpus, err := cpuset.Parse(fc.CPUs)
	if err != nil {
		return Container{}, fmt.Errorf("cpus %q: %w", fc.CPUs, err)
	}
	c := Container{CPUs: cpus}
	for _, b := range fc.Memory {
		nodes, err := topology.ParseNodeSet(b.Nodes)
		if err != nil {
			return Container{}, fmt.Errorf("%s: %w", b.Resource, err)
		}
		c.Memory = append(c.Memory, memory.Block{Nodes: nodes, Resource: b.Resource, Size: b.Bytes})
	}
	for _, d := range fc.Devices {
		held := DeviceSet{Resource: d.Resource, IDs: d.IDs, Answer: d.Answer}
		for _, text := range d.Nodes {
			nodes, err := topology.ParseNodeSet(text)
			if err != nil {
				return Container{}, fmt.Errorf("%s: %w", d.Resource, err)
			}
			held.Nodes = append(held.Nodes, nodes)
		}
		c.Devices = append(c.Devices, held)
	}
	return c, nil
}

// load reads the state file. A missing file is the empty state. One that cannot be used is moved
// aside, never deleted: the error, an errUnusable, has its new name and comes with the empty state.
func load(path string, now time.Time) (State, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return State{Pods: map[types.UID]Pod{}}, nil
	}
	state := State{}
	if err == nil {
		state, err = decode(raw)
	}
	if err == nil {
		return state, nil
	}
	aside, moveErr := moveAside(path, now)
	if moveErr != nil {
		return State{}, fmt.Errorf("%w, and it stays in the way: %w; move it away by hand",
			err, moveErr)
	}
	return State{Pods: map[types.UID]Pod{}},
		fmt.Errorf("%w: %w; moved to %s, going on without it", errUnusable, err, aside)
}

// moveAside gives a file that cannot be used another name, so that it is not overwritten.
func moveAside(path string, now time.Time) (string, error) {
	aside := path + ".corrupt-" + now.UTC().Format("20060102T150405.000")
	if _, err := os.Lstat(aside); err == nil {
		return "", fmt.Errorf("move %s aside: %s exists", path, aside)
	}
	if err := os.Rename(path, aside); err != nil {
		return "", fmt.Errorf("move %s aside: %w", path, err)
	}
	return aside, nil
}

// writeDurably replaces path by content: temporary file, fsync, rename, fsync of the directory.
// Until it returns nil, a reader after a crash finds the old content or the new, never a mix.
func writeDurably(path string, content []byte) error {
	if err := replaceFile(path, content, true); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("sync directory of %s: %w", path, err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory of %s: %w", path, err)
	}
	return nil
}

// replaceFile replaces path by content in one step. The temporary file's name is always the same,
// so that a crash leaves at most one, which the next write uses; a path has one writer.
func replaceFile(path string, content []byte, sync bool) error {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	tmp, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create temporary file: %w", err)
	}
	defer os.Remove(name) // after the rename there is nothing left to remove
	_, err = tmp.Write(content)
	if err == nil && sync {
		err = tmp.Sync()
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(name, path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
