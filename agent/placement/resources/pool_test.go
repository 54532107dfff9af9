package resources

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// TestPoolOfAPod: containers that share within their pod run on what its other container leaves, with their
// quota, and no other pod runs there.
func TestPoolOfAPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, pool := plainNode(t)
		pod := podtest.New("p", podtest.Containers("own cpu=2 memory=1Mi", "c cpu=1..2", "d"),
			podtest.Resources("cpu=5 memory=1Gi"))
		of := func(cpus ...int) allocation.Container {
			return allocation.Container{allocation.CPUs(cpuset.New(cpus...))}
		}
		n.lock(func() {
			n.specs = map[types.UID]*v1.Pod{"p": pod}
			n.assigned = map[types.UID]allocation.Pod{"p": {UID: "p", Containers: map[string]allocation.Container{
				allocation.WholePod: of(2, 3, 4, 5, 6), "own": of(2, 3), "c": of(4, 5, 6), "d": of(4, 5, 6)}}}
			n.commits++
		})
		n.runs("p", "0-7", true)
		n.runs("a", "0-7", true)
		pool.Wake()
		synctest.Wait()
		if got, want := n.updates(), "a-c=0-1,7 p-c=4-6:2000"; got != want {
			t.Errorf("updates %q, want %q", got, want)
		}
		for i, want := range []cri.Placement{
			{CPUs: "2-3", Exclusive: true}, {CPUs: "4-6"}, {CPUs: "4-6"},
		} {
			r, leave, err := pool.Enter(t.Context(), pod, &pod.Spec.Containers[i])
			if err != nil {
				t.Fatal(err)
			}
			leave()
			got := cri.Placement{CPUs: r.CpusetCpus, Exclusive: r.CpuQuota == cgroups.Unlimited}
			if got != want {
				t.Errorf("%s is created with %+v, want %+v", pod.Spec.Containers[i].Name, got, want)
			}
		}
		node := pool.Node()
		if limits := node.Pod(pod); limits.Quota != 5000 {
			t.Errorf("the pod, whose containers share CPUs, has the quota %d", limits.Quota)
		}
		shares := *pod.DeepCopy()
		shares.Spec.Containers = shares.Spec.Containers[:1]
		if limits := node.Pod(&shares); limits.Quota > 0 {
			t.Errorf("a pod whose containers share none has the quota %d", limits.Quota)
		}
	})
}
