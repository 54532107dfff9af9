package hollow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/topology/discover"
)

func TestParseMachines(t *testing.T) {
	for text, want := range map[string]Machines{
		"fixture:epyc-nps4=400": {"fixture:epyc-nps4", 400},
		"rack.yaml":             {"rack.yaml", 1},
		"a=b/rack.yaml=2":       {"a=b/rack.yaml", 2},
	} {
		if got, err := ParseMachines(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "=3", "a=", "a=0", "a=-1", "a=10001", "a=x"} {
		if got, err := ParseMachines(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

func TestParseInvented(t *testing.T) {
	got, err := ParseInvented("example.com/gpu=8")
	if want := (Invented{"example.com/gpu", 8}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, text := range []string{"", "gpu=8", "a/b", "a/b=0", "a/b=4097", "/b=1", "a/=1"} {
		if got, err := ParseInvented(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
}

// TestOffer: a machine offers its own devices, or those that were invented for it.
func TestOffer(t *testing.T) {
	m, err := discover.Fixture("eight-node")
	if err != nil {
		t.Fatal(err)
	}
	own, err := offer(m, nil)
	if err != nil || own.Resources["example.com/gpu"].Allocatable == 0 {
		t.Errorf("its own: %+v, %v; want GPUs", own.Resources, err)
	}
	made, err := offer(m, []Invented{{"a.b/c", 16}})
	if err != nil || len(made.Resources) != 1 {
		t.Fatalf("invented: %+v, %v", made.Resources, err)
	}
	on := map[string]int{}
	for _, d := range made.Resources["a.b/c"].Devices {
		on[d.Nodes.String()]++
	}
	for node, n := range on {
		if n != 2 || len(on) != 8 {
			t.Errorf("NUMA node %s has %d of 16 on %d", node, n, len(on))
		}
	}
}

// TestNew: what is wrong is said before anything runs; nodes are numbered by machine.
func TestNew(t *testing.T) {
	root := t.TempDir()
	kubeconfig := filepath.Join(root, "kubeconfig")
	const text = `{apiVersion: v1, kind: Config, current-context: a,
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}],
users: [{name: a, user: {token: a}}], contexts: [{name: a, context: {cluster: a, user: a}}]}`
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{
		Kubeconfig: kubeconfig, Root: root, Prefix: "h-", Requests: 10, Pace: 10,
		Machines: []Machines{{"fixture:laptop", 2}, {"fixture:playground", 1}, {"fixture:laptop", 1}},
		Settings: map[string]any{"topologyManagerPolicy": "restricted"},
	}
	s, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range s.all {
		names = append(names, n.name+" "+n.address+" "+string(n.shape.Rules().Policy))
	}
	if got, want := strings.Join(names, "\n"), `h-laptop-0 198.18.0.1 restricted
h-laptop-1 198.18.0.2 restricted
h-playground-0 198.18.0.3 restricted
h-laptop-2 198.18.0.4 restricted`; got != want {
		t.Errorf("nodes\n%s\nwant\n%s", got, want)
	}
	for want, change := range map[string]func(*Config){
		"--name-prefix":       func(c *Config) { c.Prefix = "H_" },
		"give --machine":      func(c *Config) { c.Machines = nil },
		"no built-in machine": func(c *Config) { c.Machines = []Machines{{"fixture:none", 1}} },
		"topologyManager":     func(c *Config) { c.Settings = map[string]any{"topologyManagerPolicy": "x"} },
		"kubeconfig":          func(c *Config) { c.Kubeconfig = filepath.Join(root, "none") },
	} {
		wrong := c
		change(&wrong)
		if _, err := New(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v; want one of %s", err, want)
		}
	}
}

func TestAddress(t *testing.T) {
	for number, want := range map[uint32]string{
		0: "198.19.0.1", 255: "198.19.1.0", 65533: "198.19.255.254", 65534: "198.19.0.1",
	} {
		if got := address(podAddresses, number); got != want {
			t.Errorf("address %d is %s, want %s", number, got, want)
		}
	}
}
