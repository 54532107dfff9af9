package resources

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// podOf makes the cgroups of a pod that was created with a spec.
func (k *kernel) podOf(n *world, spec *v1.Pod) {
	k.t.Helper()
	uid := spec.UID
	n.specs = map[types.UID]*v1.Pod{uid: spec}
	n.runsReally(uid, "0-7")
	for _, file := range []string{"memory.usage_in_bytes", "cpu.shares", "cgroup.controllers",
		"cgroup.subtree_control", "cgroup.procs", "memory.current"} {
		k.write(k.pod(uid, file), "0")
		k.write(k.container(uid, file), "0")
	}
	if !k.legacy {
		for _, dir := range []string{"", "kubepods", "kubepods/pod" + string(uid)} {
			k.write(filepath.Join(k.mount, dir, "cgroup.controllers"), "cpuset cpu memory")
			k.write(filepath.Join(k.mount, dir, "cgroup.subtree_control"), "")
		}
	}
	quota := cgroups.PodResources(spec, cgroups.PodOptions{Period: time.Millisecond}).CPULimit()
	k.limit(uid, k.pod, quota)
	k.limit(uid, k.container, quota)
}

// sees gives the pod another spec as allocated.
func (n *world) sees(pool *Loop, spec *v1.Pod) {
	n.lock(func() {
		n.specs = maps.Clone(n.specs)
		n.specs[spec.UID] = spec
	})
	pool.Wake()
}

func (k *kernel) expectPod(uid types.UID, cpus int64, memory string) {
	k.t.Helper()
	want := cgroups.CPULimit{Quota: 1000 * cpus, Period: 1000}
	if pod, _ := k.limited(uid); pod != want {
		k.t.Errorf("the pod has the quota %s, want %s", pod, want)
	}
	file := "memory.max"
	if k.legacy {
		file = "memory.limit_in_bytes"
	}
	expectFile(k.t, k.pod(uid, file), memory)
}

// A pod whose spec as allocated changes is given the new values in the next round, once. The fake
// kernel refuses a container's quota above the pod's, as the real one does.
func TestASpecThatChanges(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		k.podOf(n, asking("p", "2", "64Mi"))
		pool.Wake()
		expectUpdates(t, n, "at first", "")

		n.sees(pool, asking("p", "4", "128Mi"))
		expectUpdates(t, n, "all grows", "p-c=:4000+4096/134217728")
		k.expectPod("p", 4, "134217728")
		n.sees(pool, asking("p", "4", "128Mi"))
		time.Sleep(time.Minute)
		expectUpdates(t, n, "the same amounts", "")

		n.sees(pool, asking("p", "5", "64Mi"))
		expectUpdates(t, n, "CPUs grow, memory shrinks", "p-c=+5120/67108864 p-c=:5000")
		k.expectPod("p", 5, "67108864")
		n.sees(pool, asking("p", "1", "64Mi"))
		expectUpdates(t, n, "CPUs shrink", "p-c=:1000+1024")
		k.expectPod("p", 1, "67108864")
		if got := n.repairs(); got > 0 {
			t.Errorf("%d repairs are counted of what the spec changed", got)
		}
	})
}

// What another program makes of requests and limits stays, until the spec changes.
func TestLimitsThatOthersChange(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		k.podOf(n, asking("p", "2", "64Mi"))
		pool.Wake()
		k.limit("p", k.container, cgroups.CPULimit{Quota: 100, Period: 1000})
		time.Sleep(time.Minute)
		expectUpdates(t, n, "changed by another program", "")
	})
}

// While a container does not shrink, its pod does not either, and nothing of the pod grows.
func TestAContainerThatDoesNotShrink(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		k.podOf(n, asking("p", "4", "64Mi"))
		pool.Wake()
		expectUpdates(t, n, "at first", "")
		n.lock(func() { n.fail = func(string) error { return errors.New("busy") } })
		n.sees(pool, asking("p", "2", "128Mi"))
		expectUpdates(t, n, "the runtime refuses", "")
		if pod, _ := k.limited("p"); pod.Quota != 4000 {
			t.Errorf("the pod has the quota %s", pod)
		}
		n.lock(func() { n.fail = nil })
		time.Sleep(time.Minute)
		expectUpdates(t, n, "it does not any more", "p-c=/134217728 p-c=:2000+2048")
		k.expectPod("p", 2, "134217728")
	})
}

// What failed after other values changed is given in a later round.
func TestHalfOfAResize(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		k.podOf(n, asking("p", "4", "64Mi"))
		pool.Wake()
		expectUpdates(t, n, "at first", "")
		calls := 0
		n.lock(func() {
			n.fail = func(string) error {
				if calls++; calls == 2 {
					return errors.New("busy")
				}
				return nil
			}
		})
		n.sees(pool, asking("p", "2", "128Mi"))
		expectUpdates(t, n, "the second call fails", "p-c=:2000+2048")
		time.Sleep(time.Minute)
		expectUpdates(t, n, "later", "p-c=/134217728 p-c=:2000+2048")
	})
}

// use has the pod and its container use so much memory.
func (k *kernel) use(uid types.UID, bytes string) {
	file := "memory.current"
	if k.legacy {
		file = "memory.usage_in_bytes"
	}
	k.write(k.container(uid, file), bytes)
	k.write(k.pod(uid, file), bytes)
}

// A memory limit is not lowered to less than is used, at once or while CPUs change.
func TestMemoryInUse(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		k.podOf(n, asking("p", "2", "64Mi"))
		pool.Wake()
		expectUpdates(t, n, "at first", "")
		k.use("p", "50000000")
		n.sees(pool, asking("p", "2", "32Mi"))
		expectUpdates(t, n, "more is in use", "")
		n.assign("x", 5)
		pool.Wake()
		expectUpdates(t, n, "the set changes", "p-c=0-4,6-7")
		k.use("p", "1000")
		time.Sleep(time.Minute)
		expectUpdates(t, n, "less is in use", "p-c=/33554432")
		k.expectPod("p", 2, "33554432")
	})
}

// That memory is in use is told once, whatever amount it is, and found out anew at each period for as long as it takes.
func TestMemoryInUseForLong(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		k.podOf(n, asking("p", "2", "64Mi"))
		pool.Wake()
		expectUpdates(t, n, "at first", "")
		k.use("p", "50000000")
		n.sees(pool, asking("p", "2", "32Mi"))
		pool.Follow("p")
		expectSettled(t, n, "more is in use",
			`p: cannot decrease memory limits: attempting to set container "c" memory limit (33554432) below current usage (50000000)`)
		k.use("p", "60000000")
		time.Sleep(time.Hour)
		expectSettled(t, n, "another amount")
		k.use("p", "1000")
		time.Sleep(10 * time.Second)
		expectSettled(t, n, "a period after less is in use", "p: <nil>")
	})
}

// Of a pod that was resized, another run of the agent gives its containers their resources once
// more; others are left alone.
func TestResizedBeforeARestart(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		k.podOf(n, asking("p", "4", "64Mi"))
		for _, pods := range []map[types.UID]cri.Pod{n.real, n.seen} {
			pod := pods["p"]
			pod.Sandboxes = []cri.Sandbox{{Annotations: map[string]string{
				resize.Annotation: resize.Describe(asking("p", "2", "64Mi"))}}}
			pods["p"] = pod
		}
		pool.Wake()
		expectUpdates(t, n, "at first", "p-c=:4000+4096")
		time.Sleep(time.Minute)
		expectUpdates(t, n, "a minute later", "")
	})
}

func expectSettled(t *testing.T, n *world, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	n.lock(func() {
		if !slices.Equal(n.settled, want) {
			t.Errorf("%s: said is %q, want %q", what, n.settled, want)
		}
		n.settled = nil
	})
}

// What keeps a pod from its resources is told once, and that it has them; the runtime hears of the sandbox first.
func TestFollowed(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		whole := func(cpus string) *v1.Pod {
			pod := asking("p", cpus, "64Mi")
			podtest.Resources("cpu=" + cpus + " memory=64Mi")(pod)
			return pod
		}
		k.podOf(n, whole("2"))
		n.lock(func() {
			for _, pods := range []map[types.UID]cri.Pod{n.real, n.seen} {
				pod := pods["p"]
				pod.Sandboxes = []cri.Sandbox{{ID: "s", Ready: true}, {ID: "old"}}
				pods["p"] = pod
			}
		})
		pool.Wake()
		expectUpdates(t, n, "at first", "")
		n.lock(func() { n.refuses = errors.New("not here") })
		n.sees(pool, whole("4"))
		pool.Follow("p")
		expectSettled(t, n, "the runtime refuses", "p: tell the runtime of the resources of sandbox s: not here")
		if has, is := pool.Behind("p", podspec.ResourcesOf(whole("4"))); !is || has.Pod == nil || has.Pod.Limits.Cpu().String() != "2" {
			t.Errorf("it is said to have %v", has)
		}
		time.Sleep(time.Minute)
		expectSettled(t, n, "it still does")
		n.lock(func() { n.refuses, n.sandboxes = status.Error(codes.Unimplemented, "what?"), nil })
		time.Sleep(10 * time.Minute)
		expectSettled(t, n, "it does not know the call", "p: <nil>")
		expectUpdates(t, n, "then", "p-c=:4000+4096")
		if want := []string{"s=4000:1000+4096/67108864"}; !slices.Equal(n.sandboxes, want) {
			t.Errorf("of the sandbox it was told %q, want %q", n.sandboxes, want)
		}
		n.lock(func() { n.fail = func(string) error { return errors.New("busy") } })
		n.assign("x", 5)
		n.sees(pool, whole("2"))
		pool.Follow("p")
		expectSettled(t, n, "what others wait for is tried again at once")
		n.lock(func() { n.fail = nil })
		time.Sleep(time.Minute)
		expectSettled(t, n, "then", "p: <nil>")
		pool.Follow("nobody")
		expectSettled(t, n, "of nothing that runs", "nobody: <nil>")
	})
}

// A resize that a kubelet had begun is carried out: its file says what runs, and its containers say nothing.
func TestBegunByAKubelet(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		ran := podspec.ResourcesOf(asking("p", "2", "64Mi"))
		pool.cfg.Had = func(types.UID) *podspec.Resources { return &ran }
		k.podOf(n, asking("p", "4", "64Mi"))
		pool.Follow("p")
		expectUpdates(t, n, "at first", "p-c=:4000+4096")
		expectSettled(t, n, "then", "p: <nil>")
		now := podspec.ResourcesOf(asking("p", "4", "64Mi"))
		if has, is := pool.Behind("p", now); is {
			t.Errorf("it is still said to have %v", has)
		}
		// What it is allocated next is not what runs, before anybody has had it followed.
		if _, is := pool.Behind("p", podspec.ResourcesOf(asking("p", "5", "64Mi"))); !is {
			t.Error("it is said to have what nobody gave it")
		}
		if _, is := pool.Behind("nobody", now); !is {
			t.Error("nobody is said to have something")
		}
	})
}

// A container whose policy says so is not changed in place, and the pod is not said to have all before another
// one runs.
func TestStartedAnew(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		anew := func(memory string) *v1.Pod {
			pod := asking("p", "2", memory)
			pod.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
				{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
			return pod
		}
		k.podOf(n, anew("64Mi"))
		pool.Wake()
		expectUpdates(t, n, "at first", "")
		n.sees(pool, anew("128Mi"))
		pool.Follow("p")
		expectUpdates(t, n, "it waits for another container", "")
		has, is := pool.Behind("p", podspec.ResourcesOf(anew("128Mi")))
		if limits := has.Containers["c"].Limits; !is || limits.Memory().String() != "64Mi" {
			t.Errorf("it is said to have %v", has)
		}
		k.expectPod("p", 2, "134217728")
		var first cri.Pod
		n.lock(func() {
			first = n.seen["p"]
			pod := first
			pod.Containers = nil
			n.seen["p"], n.real["p"] = pod, pod
		})
		pool.Wake()
		expectSettled(t, n, "none runs")
		n.lock(func() {
			pod := first
			pod.Containers = slices.Clone(pod.Containers)
			pod.Containers[0].ID = "next"
			spec := anew("128Mi")
			pod.Containers[0].Annotations = map[string]string{
				resize.Annotation: resize.DescribeContainer(&spec.Spec.Containers[0])}
			n.seen["p"], n.real["p"] = pod, pod
		})
		pool.Wake()
		expectSettled(t, n, "another runs", "p: <nil>")
		expectUpdates(t, n, "which is left alone", "")
	})
}
