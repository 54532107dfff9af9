package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestImageAccess: pods with the same login may use an image that was pulled with one pod's secret;
// for others it is pulled again. A kill of the agent changes nothing.
func TestImageAccess(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		login := func(name, password string) {
			c.MustRun("create", "secret", "docker-registry", name,
				"--docker-server=private.test", "--docker-username=me",
				"--docker-password="+password)
		}
		login("first", "p")
		login("same", "p")
		pods := 0
		pulls := func() int { return n.Runtime.State().Calls["PullImage"] }
		pod := func(secret, policy string) string {
			pods++
			name := fmt.Sprint("pod", pods)
			c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, %s
 containers: [{name: main, image: "private.test/app:1", imagePullPolicy: %s}]}}`,
				name, n.Name, secret, policy))
			return name
		}
		const first, same = "imagePullSecrets: [{name: first}],", "imagePullSecrets: [{name: same}],"
		await(t, c, c.Namespace, pod(first, "IfNotPresent"), runs)
		if got := pulls(); got != 1 {
			t.Fatalf("%d pulls", got)
		}
		// A restarted stock kubelet lets any pod use the image.
		forgets := n.Name == "kubelet"
		for round := range 2 {
			await(t, c, c.Namespace, pod(same, "IfNotPresent"), runs)
			await(t, c, c.Namespace, pod(first, "Never"), runs)
			if round == 0 || !forgets {
				await(t, c, c.Namespace, pod("", "Never"), neverPulled)
			}
			if got := pulls(); got != 1 {
				t.Errorf("%d pulls for pods that may use the image", got)
			}
			n.Kill()
			n.Start()
			c.AwaitReady(n.Name)
		}
		harness.Eventually(t, "the event of an image that is there", func() error {
			events, err := c.Run("get", "events")
			if err == nil && !strings.Contains(events, `Container image "private.test/app:1" `+
				`already present on machine and can be accessed by the pod`) {
				err = fmt.Errorf("there are %s", events)
			}
			return err
		})
		await(t, c, c.Namespace, pod("", "IfNotPresent"), runs)
		if got := pulls(); got != 2 && !forgets {
			t.Errorf("%d pulls after one for a pod that had no login", got)
		}
	})
}

// neverPulled reports whether a container waits because it may neither use the image nor pull it.
func neverPulled(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s v1.ContainerStatus) bool {
		w := s.State.Waiting
		return w != nil && w.Reason == "ErrImageNeverPull" &&
			strings.HasSuffix(w.Message, "is not present with pull policy of Never")
	})
}
