package hollow

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/topology/topologytest"
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
	m := topologytest.Fixture(t, "eight-node")
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
		names = append(names, n.name+" "+n.address+" "+string(n.shape.Rules.Policy))
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

// Of a KubeletConfiguration what names one host is left out, and its taints count.
func TestShapeOfConfiguration(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "config.yaml")
	const text = `{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration,
staticPodPath: /etc/kubernetes/manifests, staticPodURL: "http://127.0.0.1:1/pods",
podLogsDir: /var/log/pods, providerID: "cloud://one", maxPods: 7,
registerWithTaints: [{key: a, effect: NoSchedule}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c := Config{Root: root, File: file, Taints: []v1.Taint{{Key: "b", Effect: v1.TaintEffectNoExecute}},
		Labels: map[string]string{"hollow": "yes"}}
	args, err := c.write()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newShape(c, args, "fixture:laptop")
	if err != nil {
		t.Fatal(err)
	}
	k := s.cfg.Kubelet
	for name, value := range map[string]string{
		"staticPodPath": k.StaticPodPath, "staticPodURL": k.StaticPodURL,
		"podLogsDir": k.PodLogsDir, "providerID": k.ProviderID,
	} {
		if value != "" {
			t.Errorf("%s is %q", name, value)
		}
	}
	if ts := k.RegisterWithTaints; len(ts) != 2 || ts[0].Key != "a" || ts[1].Key != "b" {
		t.Errorf("taints %v", ts)
	}
	if k.MaxPods != 7 || s.cfg.Node.Labels["hollow"] != "yes" {
		t.Errorf("%d pods, labels %v", k.MaxPods, s.cfg.Node.Labels)
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
