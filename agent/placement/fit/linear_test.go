package fit_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/agent/placement/manifest"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/assigned"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// spent returns the CPU time of f, the least of several runs, since others use this machine too.
func spent(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock := func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
			panic(err)
		}
		return time.Duration(now.Nano())
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // its cost would fall on arbitrary calls
	least := time.Hour
	for range 3 {
		runtime.GC()
		began := clock()
		f()
		least = min(least, clock()-began)
	}
	return least
}

// wide returns the manifest of a pod with that many containers.
func wide(n int, resources func(i int) string) []byte {
	var b strings.Builder
	b.WriteString(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "wide"}, ` +
		`"spec": {"containers": [`)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name": "c%d", "image": "i", "resources": {"limits": {%s}}}`, i,
			resources(i))
	}
	b.WriteString("]}}")
	return []byte(b.String())
}

// ran returns the runtime's pod with all containers running, for the second time.
func ran(p *v1.Pod) cri.Pod {
	out := cri.Pod{
		UID: p.UID, Sandboxes: []cri.Sandbox{{ID: "s", Ready: true, IPs: []string{"::1"}}},
	}
	for _, c := range p.Spec.Containers {
		for attempt := range 2 {
			out.Containers = append(out.Containers, cri.Container{
				ID: fmt.Sprint(c.Name, attempt), Name: c.Name, SandboxID: "s",
				Attempt: uint32(1 - attempt),
				State:   []cri.ContainerState{cri.ContainerRunning, cri.ContainerExited}[attempt],
			})
		}
	}
	return out
}

// The cost of a pod is linear in its containers: from its manifest to its status, eight times the
// containers take about eight times as long.
func TestCostIsLinearInContainers(t *testing.T) {
	few, more := 125, 1000
	if testing.Short() {
		few, more = 60, 480
	}
	for name, resources := range map[string]func(int) string{
		"no requests":        func(int) string { return "" },
		"guaranteed":         func(int) string { return `"cpu": "1m", "memory": "1Mi"` },
		"own CPUs, too many": func(int) string { return `"cpu": "1", "memory": "1Mi"` },
		"a device each": func(int) string {
			return `"cpu": "1m", "memory": "1Mi", "example.com/gpu": "1"`
		},
		"a resource of its own each": func(i int) string {
			return fmt.Sprintf(`"cpu": "1m", "memory": "1Mi", "example.com/r%d": "1"`, i)
		},
		"huge pages of its own each": func(i int) string {
			return fmt.Sprintf(`"cpu": "1m", "memory": "1Mi", "hugepages-%dKi": "0"`, i+1)
		},
	} {
		for policy, args := range map[string][]string{
			"none": nil,
			"container scope": {"--topology-manager-policy=single-numa-node",
				"--memory-manager-policy=Static", "--system-reserved=memory=1Gi",
				"--reserved-memory=0:memory=1Gi", "--eviction-hard=memory.available<0%"},
			"pod scope": {"--topology-manager-policy=single-numa-node",
				"--topology-manager-scope=pod"},
		} {
			t.Run(name+"/"+policy, func(t *testing.T) {
				cost := func(n int) map[string]time.Duration {
					return costs(t, wide(n, resources), args)
				}
				less, all := cost(few), cost(more)
				for part, d := range all {
					ratio := float64(d) / float64(less[part])
					t.Logf("%s: %v, %v, times %.1f", part, less[part], d, ratio)
					if ratio > 24 { // quadratic would be 64
						t.Errorf("%s of %d containers takes %v, of %d %v: %.0f times as long",
							part, few, less[part], more, d, ratio)
					}
				}
			})
		}
	}
}

// costs measures each part's work on a pod.
func costs(t *testing.T, text []byte, args []string) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	var m manifest.Manifest
	out["source"] = spent(func() {
		var err error
		if m, err = manifest.Read(text, false, nil); err != nil {
			t.Fatal(err)
		}
	})
	p, small := m.Pods[0], pod("small", "c cpu=1m")
	gpu := gpus(false, 0, 1)
	held := allocation.State{Pods: map[types.UID]allocation.Pod{}}
	s := offline(t, devicemanager.Inventory(gpu), held, args...)
	out["decision and explanation"] = spent(func() {
		q := fit.Question{Pods: m.Pods, Copies: 1}
		if _, err := fit.Place(context.Background(), s, q); err != nil {
			t.Fatal(err)
		}
	})
	observed := ran(p)
	out["status"] = spent(func() {
		facts := status.Facts{Observed: observed}
		p.Status = status.Generate(status.Input{Pod: p, Facts: facts, Previous: p.Status})
		status.Phase(p, facts)
	})
	if got := len(p.Status.ContainerStatuses); got != len(p.Spec.Containers) {
		t.Fatalf("%d of %d containers have a status", got, len(p.Spec.Containers))
	}
	out["placements"] = spent(func() {
		assigned.Rows(assigned.Input{
			Hardware: machine.Hardware{Machine: s.DryRun(small, allocation.PodClaims{}, nil).Case.Room.Machine},
			Pods:     []*v1.Pod{p}, Assigned: held, Shared: cpuset.New(0),
		})
	})
	return out
}
