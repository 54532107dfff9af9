package bench

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/topology/topologytest"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// write makes files in a temporary directory and returns its path.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const changed = head + `
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true", strict-cpu-reservation: "false"}
systemReserved: {cpu: "2", memory: 1Gi}
kubeReserved: {cpu: "2", memory: 924Mi}
memoryManagerPolicy: Static
reservedMemory:
- {numaNode: 0, limits: {memory: 1Gi}}
- {numaNode: 2, limits: {memory: 1Gi}}
topologyManagerPolicy: restricted
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true"}
featureGates: {PodLevelResourceManagers: true}
`

// The configuration decides, and what it reserves is kept from pods.
func TestPoliciesFromFiles(t *testing.T) {
	dir := write(t, map[string]string{
		"today.yaml": head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"1,33\"\nmaxPods: 7\n",
		"new.yaml":   changed,
		"d/10.conf":  head + "topologyManagerPolicy: single-numa-node\nmemoryManagerPolicy: None\n",
		"d/20.conf": head +
			"topologyManagerPolicyOptions: {prefer-closest-numa-nodes: \"false\"}\n",
		"d/30.yaml": "not read",
	})
	m := topologytest.Fixture(t, "playground")
	o := Policies{
		Words: "none",
		Configs: []string{
			dir + "/today.yaml", "new=" + dir + "/new.yaml", "strict=" + dir + "/new.yaml",
		},
		ConfigDirs: []string{"strict=" + dir + "/d", "bare=" + dir + "/d"},
	}
	policies, err := o.read(m)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range policies {
		line := fmt.Sprintf("%s: %s %s closest=%v shared=%v memory=%v %+v", p.Name, p.Rules.Policy,
			p.Rules.Scope, p.Closest, p.SharedCPUs, p.PlacedMemory, p.CPUOptions.FullPCPUsOnly)
		if p.Rules.PodLevel {
			line += " pools"
		}
		if k := p.Kept; k != nil {
			cpu, memory := k.Allocatable[v1.ResourceCPU], k.Allocatable[v1.ResourceMemory]
			pods := k.Allocatable[v1.ResourcePods]
			line += fmt.Sprintf(" [%s] %s %dMi %s pods %d", k.ReservedCPUs, &cpu,
				memory.Value()>>20, &pods, k.ReservedMemory[2][v1.ResourceMemory]>>20)
		}
		got = append(got, line)
	}
	// 100 MiB of memory are kept for eviction.
	want := []string{
		"none: none container closest=false shared=false memory=false false",
		"today: none container closest=false shared=false memory=false false " +
			"[1,33] 62 MEMORY 7 pods 0",
		"new: restricted pod closest=true shared=false memory=true true pools " +
			"[0-1,32-33] 60 LESS 110 pods 1024",
		"strict: single-numa-node pod closest=false shared=false memory=false true pools " +
			"[0-1,32-33] 60 LESS 110 pods 1024",
		"bare: single-numa-node container closest=false shared=true memory=false false " +
			"[] 64 MEMORY 110 pods 0",
	}
	free := int64(m.MemoryBytes())
	for _, n := range m.Nodes() {
		for _, pool := range n.HugePages {
			free -= int64(pool.PageBytes * pool.Count)
		}
	}
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], "MEMORY", fmt.Sprintf("%dMi", free>>20-100))
		want[i] = strings.ReplaceAll(want[i], "LESS", fmt.Sprintf("%dMi", free>>20-100-1024-924))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A file that the agent would refuse is refused with the agent's error.
func TestBadConfigs(t *testing.T) {
	dir := write(t, map[string]string{
		"typo.yaml": head + "cpuManagerPolcy: static\n",
		"none.yaml": head + "cpuManagerPolicy: static\n",
		"conflict.yaml": head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\n" +
			"cpuManagerPolicyOptions: {full-pcpus-only: \"true\", " +
			"distribute-cpus-across-cores: \"true\"}\n" +
			"featureGates: {CPUManagerPolicyAlphaOptions: true}\n",
		"far.yaml": head + "cpuManagerPolicy: static\nreservedSystemCPUs: \"99\"\n",
		"sum.yaml": head + "memoryManagerPolicy: Static\n" +
			"reservedMemory: [{numaNode: 0, limits: {memory: 5Gi}}]\n",
		"ok.yaml": head,
		"d/x":     "",
	})
	m := topologytest.Fixture(t, "playground")
	for want, o := range map[string]Policies{
		"policy typo: config file " + dir + "/typo.yaml: cpuManagerPolcy: unknown field": {
			Configs: []string{dir + "/typo.yaml"}},
		"policy a: invalid configuration: cpuManagerPolicy: Invalid value": {
			Configs: []string{"a=" + dir + "/none.yaml"}},
		"policy conflict: invalid configuration: cpuManagerPolicyOptions.full-pcpus-only: " +
			"Forbidden: cannot be used with distribute-cpus-across-cores": {
			Configs: []string{dir + "/conflict.yaml"}},
		`policy far: reserve cpus "99": the machine has no "99"`: {
			Configs: []string{dir + "/far.yaml"}},
		"policy sum: invalid configuration: reservedMemory: ": {
			Configs: []string{dir + "/sum.yaml"}},
		`policies: "ok" is there twice`: {
			Configs: []string{dir + "/ok.yaml", dir + "/ok.yaml"}},
		`--config "=x": write NAME=FILE`: {
			Configs: []string{"=x"}},
		`--config-dir "x": write NAME=DIR`: {
			ConfigDirs: []string{"x"}},
		`--config-dir "a=c": a has b already`: {
			ConfigDirs: []string{"a=b", "a=c"}},
		"policy a: list --config-dir: lstat " + dir + "/none: no su": {
			ConfigDirs: []string{"a=" + dir + "/none"}},
	} {
		if _, err := o.read(m); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

// If a run is ended early, policies that had not begun are left out.
func TestComplete(t *testing.T) {
	outcome := func(name string, arrived int) rig.Outcome {
		return rig.Outcome{Policy: name, Pods: rig.Pods{Arrived: arrived}}
	}
	for _, test := range []struct {
		arrived     []int
		begun       int
		interrupted bool
	}{{[]int{9, 9}, 2, false}, {[]int{9, 4, 0}, 2, true}, {[]int{0}, 0, true}} {
		var all []rig.Outcome
		for i, n := range test.arrived {
			all = append(all, outcome(fmt.Sprint(i), n))
		}
		begun, interrupted := complete(all, 9)
		if len(begun) != test.begun || interrupted != test.interrupted {
			t.Errorf("%v: %d begun, interrupted %v", test.arrived, len(begun), interrupted)
		}
	}
}

// A report goes to the target of a link, and into a path that exists and is no regular file.
func TestWriteFileKeepsWhatIsThere(t *testing.T) {
	dir := write(t, map[string]string{"report": "old"})
	link := filepath.Join(dir, "link")
	if err := os.Symlink("report", link); err != nil {
		t.Fatal(err)
	}
	hello := func(w io.Writer) error { _, err := io.WriteString(w, "hello"); return err }
	if err := writeFile(link, hello); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "report"))
	if info, lerr := os.Lstat(link); err != nil || lerr != nil || string(raw) != "hello" ||
		info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%q, %v, %v", raw, err, lerr)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := writeFile(fmt.Sprintf("/proc/self/fd/%d", w.Fd()), hello); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(r); string(raw) != "hello" || err != nil {
		t.Errorf("the pipe got %q, %v", raw, err)
	}
}
