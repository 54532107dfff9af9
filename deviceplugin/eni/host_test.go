package eni

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/numalet/numalet/internal/strictyaml"
)

// simulated is a host as data: files of sysfs, answers of netlink, and the interfaces that are
// away.
type simulated struct {
	mu      sync.Mutex
	links   []Link
	routes  []int
	rdma    map[int][]string
	away    []Link
	user    int // a process where they are
	applied []string
	broken  error // error of Apply
	changed func()
}

// Links implements Kernel.
func (s *simulated) Links() ([]Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.links), nil
}

// Routes implements Kernel.
func (s *simulated) Routes() ([]int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.routes), nil
}

// RDMA implements Kernel.
func (s *simulated) RDMA() (map[int][]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rdma, nil
}

// Watch implements Kernel.
func (s *simulated) Watch(ctx context.Context, changed func()) error {
	s.mu.Lock()
	s.changed = changed
	s.mu.Unlock()
	changed()
	<-ctx.Done()
	return nil
}

// change changes the host and reports it.
func (s *simulated) change(do func()) {
	s.mu.Lock()
	do()
	changed := s.changed
	s.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// Fetch implements Mover.
func (s *simulated) Fetch(i Interface) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.away, i.same)
	if at < 0 {
		return errNowhere
	}
	s.links = append(s.links, s.away[at])
	s.away = slices.Delete(s.away, at, at+1)
	return nil
}

// User implements Mover.
func (s *simulated) User(i Interface) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.away, i.same) {
		return s.user, nil
	}
	return 0, nil
}

// Apply implements Mover.
func (s *simulated) Apply(index int, step Step) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applied = append(s.applied, step.String())
	at := slices.IndexFunc(s.links, func(l Link) bool { return l.Index == index })
	if at < 0 {
		return errors.New("it is not at home")
	}
	if s.broken == nil {
		s.links[at].State.apply(step)
	}
	return s.broken
}

func (s *State) apply(step Step) {
	switch step.Op {
	case SetUp, SetDown:
		s.Up = step.Op == SetUp
	case SetName:
		s.Name = step.Text
	case SetAlias:
		s.Alias = step.Text
	case SetMAC:
		s.MAC = step.Text
	case SetMTU:
		s.MTU = step.Number
	default:
	}
}

// machine is the file of a simulated host: its links, and the functions beneath them.
type machine struct {
	Routes []int `json:"routes"`
	Links  []struct {
		Link
		// Sysfs is the path of the device beneath, below /sys/devices; Files are its files.
		Sysfs string            `json:"sysfs"`
		Speed string            `json:"speed"`
		Files map[string]string `json:"files"`
	} `json:"links"`
}

// open makes a simulated host from a file in testdata.
func open(t *testing.T, name string) (*simulated, sysfs) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var m machine
	if err := strictyaml.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	s, root := &simulated{routes: m.Routes}, t.TempDir()
	for _, dir := range []string{"class/net", "bus/pci/devices"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range m.Links {
		s.links = append(s.links, l.Link)
		if l.Sysfs == "" {
			continue
		}
		device := filepath.Join(root, "devices", l.Sysfs)
		for file, text := range l.Files {
			put(t, filepath.Join(device, file), text)
			if parts := strings.Split(file, "/"); len(parts) == 3 { // infiniband/mlx5_0/node_type
				class := filepath.Join(root, "class", parts[0])
				if err := os.MkdirAll(class, 0o755); err != nil {
					t.Fatal(err)
				}
				link(t, filepath.Join(device, parts[0], parts[1]), filepath.Join(class, parts[1]))
			}
		}
		put(t, filepath.Join(root, "class/net", l.State.Name, "dev_port"), "0")
		if l.Speed != "" {
			put(t, filepath.Join(root, "class/net", l.State.Name, "speed"), l.Speed)
		}
		link(t, device, filepath.Join(root, "class/net", l.State.Name, "device"))
		for ; device != root; device = filepath.Dir(device) {
			if pciAddress.MatchString(filepath.Base(device)) {
				link(t, device, filepath.Join(root, "bus/pci/devices", filepath.Base(device)))
				break
			}
		}
	}
	return s, sysfs{root, "/dev"}
}

// put writes a file, or a link if the text begins with "-> ".
func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if to, is := strings.CutPrefix(text, "-> "); is {
		link(t, to, path)
		return
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
}

// pages is a log that a test reads.
type pages struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *pages) has(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Contains(p.text.String(), text)
}
