package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestDevicesChosenInABinding: a scheduler writes the devices that it chose into its Binding, and
// the node gives the container these. Later changes there have no effect.
func TestDevicesChosenInABinding(t *testing.T) {
	c := rig.Start(t)
	agent := harness.New(t)
	n := c.Join(agent, "choice")
	agent.Args = append(agent.Args, "--devices-chosen-by="+c.Namespace+"/chooser")
	n.Start()
	c.AwaitReady(n.Name)
	const nic, annotation = "example.com/nic", "example.com/nic_container-main"
	agent.Plugin(nic, "--devices=4", "--nodes=0-3")
	c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: chosen}, spec: {
 schedulerName: chooser, automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 containers: [{name: main, image: "registry.test/work:1", resources: {limits: {%s: 2}}}]}}`, nic))
	err := c.Client.CoreV1().Pods(c.Namespace).Bind(t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "chosen", Annotations: map[string]string{
			annotation: "nic-3,nic-1",
		}},
		Target: v1.ObjectReference{Kind: "Node", Name: n.Name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await(t, c, c.Namespace, "chosen", runs)
	has := func(want string) {
		agent.Eventually("the container has "+want, func() error {
			rows, err := agent.Placements()
			got := strings.Join(rows["chosen/main"].Devices[nic], ",")
			if err == nil && got != want {
				err = fmt.Errorf("it has %q", got)
			}
			return err
		})
	}
	has("nic-1,nic-3")
	c.MustRun("annotate", "--overwrite", "pod", "chosen", annotation+"=nic-0,nic-2")
	n.Kill()
	n.Start()
	await(t, c, c.Namespace, "chosen", runs)
	has("nic-1,nic-3")
	c.MustRun("delete", "pod", "chosen", "--timeout=1m")
}
