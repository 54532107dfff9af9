package guest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
	"github.com/numalet/numalet/cmd/numalet-lab/sim"
)

// lives is a running container, as the kernel has it.
type lives struct {
	name   string
	pod    v1.Pod
	report workload.Report
	// cgroup is its folder, pid its first process.
	cgroup string
	pid    int
	// promise is the agent's row about it.
	promise assigned.Row
}

// look finds the container of a pod when it runs.
func (g guest) look(name string) lives {
	g.t.Helper()
	pod := g.running(name)
	l := lives{name: name, pod: pod, report: g.report(pod)}
	for _, pattern := range []string{"kubepods/pod*/", "kubepods/*/pod*/"} {
		found, err := filepath.Glob(filepath.Join(cgroupDir, pattern, id(pod)))
		if err != nil {
			g.t.Fatal(err)
		}
		for _, l.cgroup = range found {
		}
	}
	first, _, _ := strings.Cut(said(g.t, l.cgroup, "cgroup.procs"), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		g.t.Fatalf("processes of %s: %v", l.cgroup, err)
	}
	rows, err := g.Placements()
	if err != nil {
		g.t.Fatal(err)
	}
	l.pid, l.promise = pid, rows[pod.Name+"/main"]
	return l
}

// cpus and mems return what the process may use now, "0-3".
func (l lives) cpus(t *testing.T) cpuset.CPUSet { return l.allowed(t, "Cpus_allowed_list:") }
func (l lives) mems(t *testing.T) cpuset.CPUSet { return l.allowed(t, "Mems_allowed_list:") }

func (l lives) allowed(t *testing.T, field string) cpuset.CPUSet {
	t.Helper()
	for line := range strings.Lines(said(t, "/proc", strconv.Itoa(l.pid), "status")) {
		if text, ok := strings.CutPrefix(line, field); ok {
			return parse(t, strings.TrimSpace(text))
		}
	}
	t.Fatalf("process %d has no %s", l.pid, field)
	return cpuset.New()
}

func parse(t *testing.T, text string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// devices returns the PCI addresses that the container was given, from its environment.
func (l lives) devices() (addresses []string) {
	for _, resource := range []string{nic, disk} {
		if text := l.report.Env[sim.EnvName(resource)]; text != "" {
			addresses = append(addresses, strings.Split(text, ",")...)
		}
	}
	return addresses
}

// nodes returns the nodes of its CPUs and devices.
func (l lives) nodes(t *testing.T) cpuset.CPUSet {
	t.Helper()
	nodes := nodesOf(t, l.cpus(t))
	for _, address := range l.devices() {
		nodes = nodes.Union(cpuset.New(pciNode(t, address)))
	}
	return nodes
}

// exclusive checks a container with CPUs of its own against the kernel, and returns it: its CPUs,
// memory and devices must be what it asked for and where the agent promises.
func (g guest) exclusive(name string, a ask) lives {
	g.t.Helper()
	t, l := g.t, g.look(name)
	cpus := l.cpus(t)
	row(t, "%s: CPUs %s, memory of nodes %s, %v: on nodes %s", name, cpus, l.mems(t), l.devices(),
		l.nodes(t))
	if want, err := strconv.Atoi(a.cpu); err != nil || cpus.Size() != want || !wholeCores(t, cpus) {
		t.Errorf("%s has CPUs %s, want %s in whole cores", name, cpus, a.cpu)
	}
	if len(l.devices()) != a.nics+a.disks {
		t.Errorf("%s has devices %v, want %+v", name, l.devices(), a)
	}
	for what, got := range map[string]cpuset.CPUSet{
		"inside":             parse(t, l.report.CPUs),
		"cpuset.cpus":        saidList(t, l.cgroup, "cpuset.cpus"),
		"its effective ones": saidList(t, l.cgroup, "cpuset.cpus.effective"),
		"promised":           parse(t, l.promise.CPUs),
	} {
		if !got.Equals(cpus) {
			t.Errorf("%s runs on CPUs %s; %s: %s", name, cpus, what, got)
		}
	}
	if !l.promise.Exclusive || l.promise.NUMANodes != l.nodes(t).String() {
		t.Errorf("%s is on nodes %s; promised: %+v", name, l.nodes(t), l.promise)
	}
	if text := said(t, l.cgroup, "cpu.max"); !strings.HasPrefix(text, "max ") {
		t.Errorf("%s has CPUs of its own and a quota: %s", name, text)
	}
	l.checkDisks(t)
	g.checkMemory(l, a)
	return l
}

// checkDisks: the block devices of its disks, and no others, are inside.
func (l lives) checkDisks(t *testing.T) {
	t.Helper()
	want, got := map[string]bool{}, map[string]bool{}
	for _, address := range l.devices() {
		if strings.HasPrefix(said(t, pciDir, address, "class"), diskClass) {
			want[said(t, "/sys/class/block", blockDevice(t, address), "dev")] = true
		}
	}
	for _, device := range l.report.Devices {
		if device.Type == "b" {
			got[fmt.Sprintf("%d:%d", device.Major, device.Minor)] = true
		}
	}
	equal(t, want, got)
}

// checkMemory: memory and huge pages come from the nodes that are promised.
func (g guest) checkMemory(l lives, a ask) {
	g.t.Helper()
	t, mems := g.t, l.mems(g.t)
	for what, got := range map[string]string{
		"inside": l.report.Mems, "in cpuset.mems": said(t, l.cgroup, "cpuset.mems"),
		"promised": l.promise.MemoryNodes,
	} {
		if got != mems.String() {
			t.Errorf("%s may use memory of nodes %s; %s: %q", l.name, mems, what, got)
		}
	}
	g.Eventually("it uses memory on its nodes", func() error {
		return usedOn(filepath.Join(l.cgroup, "memory.numa_stat"), "anon", mems, allocated)
	})
	if a.huge == 0 {
		return
	}
	if want := strconv.Itoa(a.huge << 20); said(t, l.cgroup, "hugetlb.2MB.max") != want {
		t.Errorf("hugetlb.2MB.max is %s, want %s", said(t, l.cgroup, "hugetlb.2MB.max"), want)
	}
	file := filepath.Join(l.cgroup, "hugetlb.2MB.numa_stat")
	g.Eventually("it uses huge pages on its nodes", func() error {
		return usedOn(file, "total", mems, a.huge)
	})
	row(t, "%s: huge pages: %s", l.name, said(t, file))
}

// usedOn reports whether a line like "anon N0=4096 N1=0" has at least so many MiB on the nodes, and
// as good as nothing on others.
func usedOn(file, name string, nodes cpuset.CPUSet, mib int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	on, off := 0, 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(fields[0], name) || strings.HasPrefix(fields[0], name+"_") {
			continue
		}
		for _, field := range fields {
			var node, bytes int
			if _, err := fmt.Sscanf(field, "N%d=%d", &node, &bytes); err != nil {
				continue // the name
			}
			if nodes.Contains(node) {
				on += bytes
			} else {
				off += bytes
			}
		}
	}
	if on < mib<<20 || off > 1<<20 {
		return fmt.Errorf("%s: %d bytes on nodes %s, %d elsewhere", file, on, nodes, off)
	}
	return nil
}

// shared waits until a container without CPUs of its own may use exactly these, and the agent says
// so. Its cgroup may list more that are offline.
func (g guest) shared(name string, want cpuset.CPUSet) {
	g.t.Helper()
	l := g.look(name)
	g.Eventually("the shared container uses CPUs "+want.String(), func() error {
		rows, err := g.Placements()
		if err != nil {
			return err
		}
		got, promised := l.cpus(g.t), rows[l.pod.Name+"/main"].CPUs
		cgroup := saidList(g.t, l.cgroup, "cpuset.cpus")
		if !got.Equals(want) || promised != want.String() || !want.IsSubsetOf(cgroup) {
			return fmt.Errorf("it may use %s, its cgroup has %s, promised: %s",
				got, cgroup, promised)
		}
		return nil
	})
	row(g.t, "%s: CPUs %s, memory of nodes %s", name, l.cpus(g.t), l.mems(g.t))
}

// pool returns the online CPUs that are not exclusive.
func (g guest) pool() cpuset.CPUSet {
	g.t.Helper()
	rows, err := g.Placements()
	if err != nil {
		g.t.Fatal(err)
	}
	pool := saidList(g.t, cpuDir, "online")
	for _, r := range rows {
		if r.Exclusive {
			pool = pool.Difference(parse(g.t, r.CPUs))
		}
	}
	return pool
}
