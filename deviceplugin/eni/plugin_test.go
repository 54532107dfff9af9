package eni

import (
	"context"
	"errors"
	"io"
	"log"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/topology"
)

// places returns paths in the test's own folder, and those of sysfs.
func places(t *testing.T, plugins string, s sysfs) Places {
	t.Helper()
	dir := t.TempDir()
	p := Places{Plugins: plugins, PodResources: filepath.Join(dir, "pods.sock"), State: dir,
		CDI: filepath.Join(dir, "cdi"), Infos: filepath.Join(dir, "infos"), Sysfs: s.root,
		Dev: s.dev, Proc: filepath.Join(dir, "proc"), Namespaces: []string{}}
	if err := os.Mkdir(p.CDI, 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

// Interfaces of a simulated host, and counts, pass every check of a device plugin.
func TestCheckInterfaces(t *testing.T) {
	const resource = "example.com/eni"
	host, sys := open(t, "rdma")
	at := len(host.links)
	for i, l := range host.links {
		if l.State.Name == "eth1" {
			at = i
		}
	}
	gone := host.links[at]
	carrier := func(is bool) func(context.Context) error {
		return func(context.Context) error {
			host.change(func() { host.links[len(host.links)-1].Carrier = is })
			return nil
		}
	}
	host.links = append(host.links, Link{Index: 20, Kind: "dummy", Carrier: true,
		State: State{Name: "fake0", MAC: "02:00:00:00:01:00",
			Up: true}})
	specs := t.TempDir()
	report := check.Test(t, check.Config{
		Patience: time.Minute, Resource: resource, Nodes: topology.NewNodeSet(0, 1),
		CDI: []string{specs},
		Run: func(ctx context.Context, dirs check.Dirs) error {
			where := places(t, dirs.Plugins, sys)
			where.CDI = specs
			return Run(ctx, Config{
				Interfaces: []Rule{{Resource: resource, Drivers: []string{"virtio_net"}},
					{Resource: resource, Names: []string{"fake*", "veth*"}}},
				Move:   ByRuntime,
				Places: where, Log: log.New(io.Discard, "", 0),
				Kernel: host, Mover: host,
			})
		},
		Levers: map[check.Lever]func(context.Context) error{
			check.Sicken: carrier(false), check.Cure: carrier(true),
			check.Vanish: func(context.Context) error {
				host.change(func() { host.links[at] = Link{Index: 99, Kind: "ifb"} })
				return os.Rename(filepath.Join(sys.root, "bus/pci/devices/0000:00:06.0"),
					filepath.Join(sys.root, "unplugged"))
			},
			check.Return: func(context.Context) error {
				host.change(func() { host.links[at] = gone })
				return os.Rename(filepath.Join(sys.root, "unplugged"),
					filepath.Join(sys.root, "bus/pci/devices/0000:00:06.0"))
			},
		},
	})
	for _, r := range report.Results {
		if r.Verdict == check.Warning {
			t.Errorf("%s: %s", r.Name, r.Happened)
		}
	}
	if report.Devices != 3 {
		t.Errorf("there are %d devices, want eth1, veth1234 and fake0", report.Devices)
	}
}

func TestCheckCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "count")
	write := func(text string) func(context.Context) error {
		return func(context.Context) error { return os.WriteFile(file, []byte(text), 0o600) }
	}
	if err := write("5")(t.Context()); err != nil {
		t.Fatal(err)
	}
	report := check.Test(t, check.Config{
		Patience: time.Minute, // counts are asked for at intervals
		Run: func(ctx context.Context, dirs check.Dirs) error {
			return Run(ctx, Config{
				Counts: []Count{{Resource: "example.com/eni-ip", File: file}}, Every: "1s",
				Places: places(t, dirs.Plugins, sysfs{}), Log: log.New(io.Discard, "", 0),
			})
		},
		Levers: map[check.Lever]func(context.Context) error{
			check.Vanish: write("3"), check.Return: write("5"), check.Multiply: write("100000"),
		},
	})
	if report.Devices != 5 {
		t.Errorf("there are %d devices, want 5", report.Devices)
	}
}

// All errors of a configuration are reported at once.
func TestBadConfig(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct {
		cfg  Config
		want []string
	}{
		"empty": {Config{}, []string{"nothing is to be offered: give rules"}},
		"all of it": {Config{
			Interfaces: []Rule{{Resource: "eni"}},
			Counts: []Count{{Resource: "a.b/c"}, {Resource: "a.b/c", File: "f", Less: -1},
				{Resource: "a.b/d", Metadata: "ips"}},
			NodeIPs: []string{"node"}, Move: "somehow", Every: "often",
			Metadata: Metadata{Token: "ftp://x"},
		}, []string{`resource "eni": write the name`, "a.b/c: give exactly one of",
			"a.b/c: less is -1", "a.b/c: it is counted and has another rule or count",
			"a.b/d: the metadata service counts it and has no URL",
			`node address "node"`, `move "somehow": want network or runtime`,
			`every "often": write how often`, `metadata service "ftp://x": write a URL`}},
		"no folder": {Config{Counts: []Count{{Resource: "a.b/c", File: "f"}},
			Places: Places{Plugins: filepath.Join(dir, "none")}},
			[]string{"there is no such directory: start the kubelet or numalet"}},
	} {
		if tt.cfg.Places.Plugins == "" {
			tt.cfg.Places.Plugins = dir
		}
		err := Run(t.Context(), tt.cfg)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v\nwant %s", name, err, want)
			}
		}
	}
}

// A configuration file is read strictly.
func TestReadConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "eni.yaml")
	text := `
interfaces:
- resource: example.com/rdma
  virtualOf: [ens8f0]
  rdma: true
counts:
- {resource: example.com/eni-ip, metadata: ips, less: 1}
metadata: {url: "http://192.0.2.1/latest"}
move: runtime
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := ReadConfig(path)
	if err != nil || !cfg.Interfaces[0].RDMA || cfg.Counts[0].Less != 1 || cfg.Move != ByRuntime {
		t.Errorf("%+v, %v", cfg, err)
	}
	if err := os.WriteFile(path, []byte(text+"speed: fast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadConfig(path); err == nil || !strings.Contains(err.Error(), "speed") {
		t.Errorf("a field that there is not: %v", err)
	}
	if _, err := ReadConfig(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that there is not: %v", err)
	}
}
