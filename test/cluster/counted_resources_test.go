package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/test/cluster/rig"
)

// TestResourcesWithoutPlugins: a resource that no plugin has, but the node's status, is counted; one that
// the status has not is left aside. Both agents say the same, also after a restart.
func TestResourcesWithoutPlugins(t *testing.T) {
	reported := map[string]string{}
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		agent := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
		const dongle, nowhere = "example.com/dongle", "example.com/gpumem"
		patch := fmt.Sprintf(`{"status": {"capacity": {%q: "2"}}}`, dongle)
		if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), n.Name, types.StrategicMergePatchType,
			[]byte(patch), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		has := func(when string) {
			t.Helper()
			n.Eventually(when+" the node's status has the resource", func() error {
				node, err := c.Client.CoreV1().Nodes().Get(t.Context(), n.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				may, all := node.Status.Allocatable[dongle], node.Status.Capacity[dongle]
				if may.Value() != 2 || all.Value() != 2 {
					err = fmt.Errorf("capacity %s, allocatable %s", &all, &may)
				}
				return err
			})
		}
		start := func(name, resource string, many int) {
			c.Apply(bound(n.Name, name, fmt.Sprintf(`, resources: {limits: {%q: %d}}`, resource, many)))
		}
		refused := func(name string) string {
			t.Helper()
			pod := await(t, c, c.Namespace, name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
			return fmt.Sprintln(name, pod.Status.Reason, pod.Status.Message)
		}
		has("patched,")
		start("one", dongle, 1)
		start("aside", nowhere, 5)
		first := await(t, c, c.Namespace, "one", runs)
		await(t, c, c.Namespace, "aside", runs)
		start("three", dongle, 3)
		reported[agent] = refused("three")

		if err := n.Stop(); err != nil {
			t.Error(err)
		}
		n.Start()
		c.AwaitReady(n.Name)
		has("after the restart,")
		start("second", dongle, 1)
		await(t, c, c.Namespace, "second", runs)
		start("late", dongle, 1)
		reported[agent] += refused("late")
		for _, name := range []string{"one", "aside"} {
			pod := await(t, c, c.Namespace, name, runs)
			if name == "one" && pod.Status.ContainerStatuses[0].ContainerID !=
				first.Status.ContainerStatuses[0].ContainerID {
				t.Error("the restart made the container anew")
			}
		}
		c.MustRun("delete", "pods", "--all", "--timeout=1m")
	})
	if diff := cmp.Diff(reported["kubelet"], reported["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet:\n%s", diff)
	}
	if !strings.HasPrefix(reported["numalet"], "three OutOfexample.com/dongle ") {
		t.Errorf("numalet told\n%s", reported["numalet"])
	}
}
