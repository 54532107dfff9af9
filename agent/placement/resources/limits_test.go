package resources

import (
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

var unlimited = cgroups.CPULimit{Quota: cgroups.Unlimited, Period: 1000}

func expectFile(t *testing.T, file, want string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil || strings.TrimSpace(string(text)) != want {
		t.Errorf("%s is %q, %v; want %q", file, text, err, want)
	}
}

// expectLimits compares the CPU quotas of a pod and of its container.
func expectLimits(t *testing.T, n *world, uid types.UID, want cgroups.CPULimit) {
	t.Helper()
	if pod, container := n.kernel.limited(uid); !pod.Same(want) || !container.Same(want) {
		t.Errorf("%s has the quota %s, its container %s; want %s", uid, pod, container, want)
	}
}

// When a policy is enabled or disabled while pods run, exclusive containers and their pods lose
// their quota or get it back, together with their sets. Other quotas stay.
func TestQuotasFollowThePolicy(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		two := cgroups.CPULimit{Quota: 2000, Period: 1000}
		n.specs = map[types.UID]*v1.Pod{"a": asking("a", "1500m", "1Mi")}
		for _, uid := range []types.UID{"x", "a"} { // as created under policy none
			n.runsReally(uid, "0-7")
			k.limit(uid, k.container, two)
			k.limit(uid, k.pod, two)
		}
		n.assign("x", 2, 3)
		pool.Wake()
		expectUpdates(t, n, "static", "a-c=0-1,4-7 x-c=2-3:-1")
		expectLimits(t, n, "x", unlimited)
		expectLimits(t, n, "a", two)
		time.Sleep(time.Minute)
		expectUpdates(t, n, "a minute later", "")

		static := n.policy()
		n.lock(func() { n.static = nil })
		pool.Wake()
		expectUpdates(t, n, "none", "a-c=0-7 x-c=0-7:2000")
		expectLimits(t, n, "x", two)
		time.Sleep(time.Minute)
		expectUpdates(t, n, "a minute later", "")

		n.lock(func() { n.static = static })
		pool.Wake()
		expectUpdates(t, n, "static again", "a-c=0-1,4-7 x-c=2-3:-1")
		expectLimits(t, n, "x", unlimited)
		if got := n.repairs(); got > 0 {
			t.Errorf("%d repairs are counted of what the policies changed", got)
		}
	})
}

// Foreign changes of quotas are undone and counted; reading alone changes nothing.
func TestQuotasAreRepaired(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		n.assign("x", 2, 3)
		n.runsReally("x", "2-3")
		k.limit("x", k.container, unlimited)
		k.limit("x", k.pod, cgroups.CPULimit{Quota: cgroups.Unlimited, Period: 500})
		pool.Wake()
		time.Sleep(time.Minute)
		expectUpdates(t, n, "at first", "")

		k.limit("x", k.container, cgroups.CPULimit{Quota: 100, Period: 1000})
		time.Sleep(11 * time.Second)
		expectUpdates(t, n, "another quota of the container", "x-c=:-1")
		k.limit("x", k.pod, cgroups.CPULimit{Quota: 100, Period: 1000})
		time.Sleep(11 * time.Second)
		expectUpdates(t, n, "another quota of the pod", "")
		expectLimits(t, n, "x", unlimited)
		if got := n.repairs(); got != 2 {
			t.Errorf("%d repairs are counted, want 2", got)
		}
	})
}

// What differs in memory is said with units and names, for logs and errors.
func TestMemoryLimitsAsText(t *testing.T) {
	for _, tt := range []struct {
		given, l  limits
		has, want string
	}{
		{
			containerLimits(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 24494734,
				MemorySwapLimitInBytes: 24494734, OomScoreAdj: 999}),
			containerLimits(&runtimeapi.LinuxContainerResources{MemoryLimitInBytes: 34494734, OomScoreAdj: 998,
				Unified: map[string]string{"memory.min": "4096", "memory.high": "8192"}}),
			"24494734 bytes (with swap 24494734, OOM score 999)",
			"34494734 bytes (memory.high 8192, memory.min 4096, OOM score 998)",
		},
		{
			podLimits(cgroups.Resources{High: cgroups.Unlimited, Protection: &cgroups.Protection{}}),
			podLimits(cgroups.Resources{Memory: 69122128, High: 4096,
				Protection: &cgroups.Protection{Min: 1, Low: 2}}),
			"unlimited (memory.min 0, memory.low 0, memory.high max)",
			"69122128 bytes (memory.min 1, memory.low 2, memory.high 4096)",
		},
		{podLimits(cgroups.Resources{Memory: 4096}), podLimits(cgroups.Resources{Memory: 8192}), "4096 bytes", "8192 bytes"},
	} {
		gaps := tt.l.gaps(tt.given)
		if len(gaps) != 1 || gaps[0].what != Memory || gaps[0].has != tt.has || gaps[0].want != tt.want {
			t.Errorf("got %+v, want %q instead of %q", gaps, tt.want, tt.has)
		}
	}
}

// A container with CPUs that only complete its cores is limited to what it asked for. The quota of
// a container that is not known yet stays.
func TestQuotaOfPaddedCPUs(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		three := cgroups.CPULimit{Quota: 3000, Period: 1000}
		n.specs = map[types.UID]*v1.Pod{"x": asking("x", "3", "1Mi"), "y": nil}
		n.specs["x"].Annotations = map[string]string{podspec.AnnotationWholeCores: "true"}
		n.assign("x", 2, 3, 4, 5)
		n.assign("y", 6, 7)
		n.runsReally("x", "2-5")
		n.runsReally("y", "6-7")
		for _, uid := range []types.UID{"x", "y"} {
			k.limit(uid, k.pod, unlimited)
			k.limit(uid, k.container, three)
		}
		pool.Wake()
		expectUpdates(t, n, "as they were created", "")
		k.limit("x", k.container, unlimited)
		k.limit("y", k.container, cgroups.CPULimit{Quota: 100, Period: 1000})
		pool.Wake()
		expectUpdates(t, n, "changed by others", "x-c=:3000")

		place, leave, err := enter(t.Context(), pool, "x")
		if want := (cri.Placement{CPUs: "2-5"}); err != nil || place != want {
			t.Errorf("x is created with %+v, %v; want %+v", place, err, want)
		}
		leave()
	})
}
