package store

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/allocationtest"
	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/cpumanager"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/topology/memory"
	memorystate "github.com/numalet/numalet/topology/memory/state"
	"github.com/numalet/numalet/topology/topologytest"
)

// foreign is a file of assignments and how it is read.
type foreign struct {
	name    string
	content []byte
	decode  func([]byte) (any, error)
}

// stateFiles are those of a state: ours, and the three of the kubelet.
func stateFiles(t *testing.T) []foreign {
	t.Helper()
	machine := topologytest.Fixture(t, "playground")
	static, err := cpumanager.NewStatic(machine, cpuset.New(0), cpumanager.Options{})
	if err != nil {
		t.Fatal(err)
	}
	reserving, err := memory.New(machine, memory.Amounts{0: {"memory": 1 << 30}})
	if err != nil {
		t.Fatal(err)
	}
	a := allocationtest.Pod("a")
	a.Containers["main"].Devices()[0].Answer = []byte{0x0a, 0}
	s := allocation.State{Version: 7, Pods: map[types.UID]allocation.Pod{"a": a}}
	own, err := encode(s)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := handover.Export(dir, dir, s, handover.Node{CPUs: static, Memory: reserving}); err != nil {
		t.Fatal(err)
	}
	out := []foreign{{FileName, own, func(raw []byte) (any, error) { return decode(raw) }}}
	for name, decode := range map[string]func([]byte) (any, error){
		cpucheckpoint.FileName: func(raw []byte) (any, error) { return cpucheckpoint.Decode(raw) },
		memorystate.FileName:   func(raw []byte) (any, error) { return memorystate.Decode(raw) },
		checkpoint.FileName: func(raw []byte) (any, error) {
			entries, registered, err := checkpoint.Decode(raw)
			return fmt.Sprint(entries, registered), err
		},
	} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, foreign{name, content, decode})
	}
	return out
}

// Whatever byte of a file is another one, and wherever it ends, it is refused, or read as what it
// was: the case of a field's name does not count.
func TestEveryByte(t *testing.T) {
	for _, f := range stateFiles(t) {
		t.Run(f.name, func(t *testing.T) {
			want, err := f.decode(f.content)
			if err != nil {
				t.Fatal(err)
			}
			for i := range len(bytes.TrimSuffix(f.content, []byte("\n"))) {
				if _, err := f.decode(f.content[:i]); err == nil {
					t.Errorf("the first %d bytes were accepted", i)
				}
			}
			accepted := 0
			for i := range f.content {
				for _, other := range []byte{1, 2, 4, 8, 16, 32, 64, 128, f.content[i]} {
					damaged := bytes.Clone(f.content)
					damaged[i] ^= other
					got, err := f.decode(damaged)
					if err != nil {
						continue
					}
					accepted++
					if diff := cmp.Diff(want, got, allocationtest.Same); diff != "" {
						t.Errorf("byte %d as %q: read as (-want +got):\n%s", i, damaged[i], diff)
					}
				}
			}
			t.Logf("%d bytes; %d changes of one make no difference", len(f.content), accepted)
		})
	}
}

// Files of version 1 have no memory; newer ones than ours are kept for who wrote them.
func TestVersionsOfTheFile(t *testing.T) {
	const old = `{"version":1,"checksum":1151781218,"data":{"generation":3,"pods":[{"uid":"a",` +
		`"namespace":"default","name":"train-a","bootID":"boot-1","containers":[{"name":"main",` +
		`"cpus":"2-3","devices":[{"resource":"example.com/gpu","ids":["gpu-0"],"answer":""}]}]}]}}`
	got, err := decode([]byte(old))
	want := allocation.State{Version: 3, Pods: map[types.UID]allocation.Pod{"a": {
		UID: "a", Namespace: "default", Name: "train-a", BootID: "boot-1",
		Containers: map[string]allocation.Container{"main": {allocation.CPUs(cpuset.New(2, 3)), allocation.Devices{
			{Resource: "example.com/gpu", IDs: []string{"gpu-0"}, Answer: []byte{}},
		}}},
	}}}
	if diff := cmp.Diff(want, got, allocationtest.Same); diff != "" || err != nil {
		t.Errorf("version 1: %v (-want +got):\n%s", err, diff)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, FileName)
	newer := strings.Replace(old, `"version":1`, `"version":9`, 1)
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = load(path, time.Unix(0, 0))
	aside := path + ".corrupt-19700101T000000.000"
	text := "unusable state file: state file of version 9, this agent reads versions 1 to 4: to " +
		"have it back, put it in its place again and run the newer agent that wrote it; moved to " +
		aside + ", going on without it"
	if err == nil || err.Error() != text {
		t.Errorf("a newer version:\n%v, want\n%s", err, text)
	}
	if raw, err := os.ReadFile(aside); string(raw) != newer || err != nil {
		t.Errorf("moved aside: %s, %v", raw, err)
	}
}

// Of the kubelet's files one that cannot be used is moved aside, and the others are read.
func TestKubeletFilesMovedAside(t *testing.T) {
	all := stateFiles(t)[1:]
	for _, bad := range all {
		for name, damage := range map[string]func(path string) error{
			"empty": func(path string) error { return os.WriteFile(path, nil, 0o600) },
			"zeros": func(path string) error {
				return os.WriteFile(path, make([]byte, len(bad.content)), 0o600)
			},
			"cut": func(path string) error {
				return os.WriteFile(path, bad.content[:len(bad.content)/2], 0o600)
			},
			"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
			"a pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
			"a link":   func(path string) error { return os.Symlink("/dev/zero", path) },
			"too long": func(path string) error {
				return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, maxFile+1))
			},
		} {
			t.Run(bad.name+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				for _, f := range all {
					if f.name == bad.name {
						continue
					}
					err := os.WriteFile(filepath.Join(dir, f.name), f.content, 0o600)
					if err != nil {
						t.Fatal(err)
					}
				}
				path := filepath.Join(dir, bad.name)
				if err := damage(path); err != nil {
					t.Fatal(err)
				}
				k, err := handover.ReadKubelet(dir, dir, time.Unix(0, 0))
				aside := path + ".corrupt-19700101T000000.000"
				if err == nil || !strings.Contains(err.Error(), "moved to "+aside) {
					t.Errorf("error %v", err)
				}
				if _, err := os.Lstat(aside); err != nil {
					t.Error(err)
				}
				for _, read := range []struct {
					name string
					has  bool
				}{
					{cpucheckpoint.FileName, len(k.CPUs.Entries) > 0},
					{memorystate.FileName, len(k.Memory.Entries) > 0},
					{checkpoint.FileName, len(k.Devices) > 0},
				} {
					if want := read.name != bad.name; read.has != want {
						t.Errorf("%s was read: %t, want %t", read.name, read.has, want)
					}
				}
			})
		}
	}
}

// What stands in the place of an exported file makes way, and nothing behind a link is touched.
func TestExportInPlaceOfWhatIsNoFile(t *testing.T) {
	for name, intrude := range map[string]func(path string) error{
		"pipe":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"device": func(path string) error { return os.Symlink("/dev/zero", path) },
		"folder": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
	} {
		path := filepath.Join(t.TempDir(), cpucheckpoint.FileName)
		if err := intrude(path); err != nil {
			t.Fatal(err)
		}
		if err := handover.Export(filepath.Dir(path), t.TempDir(), allocation.State{}, handover.Node{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		raw, err := os.ReadFile(path)
		if err == nil {
			_, err = cpucheckpoint.Decode(raw)
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
