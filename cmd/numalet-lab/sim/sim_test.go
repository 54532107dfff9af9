package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/test/scratch"
	"github.com/numalet/numalet/topology"
)

func TestPrefer(t *testing.T) {
	device := func(text string) Device {
		id, node, found := strings.Cut(text, "@")
		d := Device{ID: id}
		if found {
			d.Nodes = []topology.NodeID{topology.NodeID(node[0] - '0')}
		}
		return d
	}
	devices := func(text string) (out []Device) {
		for word := range strings.FieldsSeq(text) {
			out = append(out, device(word))
		}
		return out
	}
	for name, tc := range map[string]struct {
		available, must string
		size            int
		want            string
	}{
		"the node that just suffices": {"a@0 b@0 c@0 d@1 e@1", "", 2, "d e"},
		"the fullest nodes":           {"a@0 b@1 c@1 d@2", "", 3, "b c a"},
		"beside what is certain":      {"a@0 b@1 c@1 d@0", "d@0", 2, "d a"},
		"without nodes":               {"a b c", "", 2, "a b"},
		"more than there are":         {"a@0", "", 3, "a"},
	} {
		t.Run(name, func(t *testing.T) {
			got := prefer(devices(tc.available), devices(tc.must), tc.size)
			if !slices.Equal(got, strings.Fields(tc.want)) {
				t.Errorf("prefers %q, want %s", got, tc.want)
			}
		})
	}
}

// Each call is a line, with the error that the plugin has for it.
func TestCallsAreReported(t *testing.T) {
	var out strings.Builder
	p, err := New(Config{Resource: "example.com/gpu", Dir: scratch.Dir(t), Out: &out,
		Faults: []Fault{{RPC: Allocate, Code: "INTERNAL", Message: "broken", Count: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, _ = answers{plugin: p}.Allocate(t.Context(), &v1beta1.AllocateRequest{}) // fails once
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		_, call, _ := strings.Cut(line, ": "+CallOf)
		got = append(got, strings.TrimSpace(call))
	}
	want := []string{"Allocate: rpc error: code = Internal desc = broken", "Allocate"}
	if !slices.Equal(got, want) {
		t.Errorf("calls %q, want %q", got, want)
	}
}

func TestPreferIsAnAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "n")
		var available []Device
		for i := range n {
			d := Device{ID: fmt.Sprint(i)}
			if node := rapid.IntRange(-1, 3).Draw(t, "node"); node >= 0 {
				d.Nodes = []topology.NodeID{topology.NodeID(node)}
			}
			available = append(available, d)
		}
		size := rapid.IntRange(1, n).Draw(t, "size")
		must := available[:rapid.IntRange(0, size).Draw(t, "must")]
		got := prefer(available, must, size)
		distinct := slices.Compact(slices.Sorted(slices.Values(got)))
		if len(got) != size || len(distinct) != size {
			t.Errorf("prefers %q of %d", got, size)
		}
		for _, d := range must {
			if !slices.Contains(got, d.ID) {
				t.Errorf("prefers %q, without %s", got, d.ID)
			}
		}
	})
}

func TestSpread(t *testing.T) {
	nodes := topology.NewNodeSet(0, 2)
	for layout, want := range map[Layout]string{
		Blocked: "[0] [0] [0] [2] [2]", RoundRobin: "[0] [2] [0] [2] [0]",
	} {
		devices, err := Spread("x", 5, nodes, layout)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, d := range devices {
			got = append(got, fmt.Sprint(d.Nodes))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: nodes %s, want %s", layout, got, want)
		}
	}
	if _, err := Spread("x", 1, nodes, "heap"); err == nil {
		t.Error("an unknown layout is accepted")
	}
}

func TestFromMachine(t *testing.T) {
	m, err := topology.NewMachine(topology.Spec{
		Nodes: []topology.Node{{ID: 0}, {ID: 1}}, CPUs: []topology.CPU{{ID: 0}},
		PCI: []topology.PCIDevice{
			{Address: "0000:01:00.0", Class: "0x030200", Node: 1},
			{Address: "0000:02:00.0", Class: "0x020000", Node: 0},
			{Address: "0000:03:00.0", Class: "0x030000", Node: topology.NoNode},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := FromMachine(m, "0x03", "gpu")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(devices); got != "[{gpu-0 true [1] 0000:01:00.0 } {gpu-1 true [] 0000:03:00.0 }]" {
		t.Errorf("devices %s", got)
	}
	if _, err := FromMachine(m, "04", "x"); err == nil {
		t.Error("no devices, and no error")
	}
}

func TestBadConfigs(t *testing.T) {
	good := Config{Resource: "example.com/gpu", Dir: "/tmp"}
	for name, spoil := range map[string]func(*Config){
		"resource":    func(c *Config) { c.Resource = "gpu" },
		"dir":         func(c *Config) { c.Dir = "" },
		"socket":      func(c *Config) { c.Socket = "/tmp/x.sock" },
		"device path": func(c *Config) { c.Answer.DevicePaths = []string{"null"} },
		"mount":       func(c *Config) { c.Answer.Mounts = []string{"/tmp"} },
		"fault":       func(c *Config) { c.Faults = []Fault{{RPC: "Allot"}} },
		"fault code":  func(c *Config) { c.Faults = []Fault{{RPC: Allocate, Code: "oops"}} },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}

// kubelet is just enough of a kubelet for a plugin to register with.
type kubelet struct {
	v1beta1.UnimplementedRegistrationServer
	requests chan *v1beta1.RegisterRequest
	refusals int
}

func (k *kubelet) Register(_ context.Context,
	req *v1beta1.RegisterRequest) (*v1beta1.Empty, error) {
	k.requests <- req
	if k.refusals > 0 {
		k.refusals--
		return nil, errors.New("not now")
	}
	return &v1beta1.Empty{}, nil
}

// serve makes the kubelet's socket anew; the returned function removes it.
func (k *kubelet) serve(t *testing.T, dir string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	v1beta1.RegisterRegistrationServer(server, k)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	stop = func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return stop
}

func (k *kubelet) expect(t *testing.T) {
	t.Helper()
	select {
	case req := <-k.requests:
		if req.GetResourceName() != "example.com/gpu" || req.GetEndpoint() != "gpu.sock" ||
			req.GetVersion() != "v1beta1" {
			t.Errorf("registered as %v", req)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the plugin does not register")
	}
}

func poll(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain")
		}
	}
}

func TestRegistersWheneverTheSocketIsMade(t *testing.T) {
	dir := scratch.Dir(t)
	control, plugins := filepath.Join(dir, "control"), filepath.Join(dir, "plugins")
	if err := os.Mkdir(plugins, 0o750); err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{
		Resource: "example.com/gpu", Dir: plugins, Socket: "gpu.sock", Control: control,
		Devices: []Device{{ID: "gpu-0", Healthy: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	k := &kubelet{requests: make(chan *v1beta1.RegisterRequest, 10), refusals: 1}
	// The plugin runs before its directory has a kubelet.
	poll(t, func() bool {
		_, err := os.Stat(filepath.Join(plugins, "gpu.sock"))
		return err == nil
	})
	stop := k.serve(t, plugins)
	k.expect(t) // refused
	k.expect(t)
	stop()
	k.serve(t, plugins)
	k.expect(t)

	client := NewClient(control)
	if err := client.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.expect(t)
	for name, order := range map[string]error{
		"health of nobody": client.SetHealth(t.Context(), false, "gpu-9"),
		"remove nobody":    client.Remove(t.Context(), "gpu-9"),
		"add twice":        client.Add(t.Context(), Device{ID: "gpu-0"}),
		"unknown call":     client.Fault(t.Context(), Fault{RPC: "Allot"}),
	} {
		if order == nil {
			t.Errorf("%s: the plugin obeys", name)
		}
	}
	if err := client.Crash(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, ErrCrashed) {
		t.Errorf("ended with %v", err)
	}
}
