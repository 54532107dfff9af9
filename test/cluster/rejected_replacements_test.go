package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tooLarge is a Deployment whose pods are bound to the node and have no place on it.
const tooLarge = `apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: 3
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      nodeName: NODE
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: "registry.test/work:1",
        resources: {requests: {cpu: "1000"}}}]
`

// TestRejectedReplacementsWait: controllers replace rejected pods at once, and the node rejects at
// most six of these a minute; the others wait and say why, and pods that fit start meanwhile.
func TestRejectedReplacementsWait(t *testing.T) {
	c, n := ours(t)
	const controllers, replicas = 4, 3
	began := time.Now()
	for i := range controllers {
		c.Apply(strings.NewReplacer("NAME", fmt.Sprint("big", i), "NODE", n.Name).Replace(tooLarge))
	}
	defer c.MustRun("delete", "deployment", "--all", "--timeout=1m")
	var failed, held int
	var all []v1.Pod
	look := func() {
		t.Helper()
		list, err := c.Client.CoreV1().Pods(c.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		failed, held, all = 0, 0, list.Items
		for _, p := range all {
			switch {
			case p.Status.Phase == v1.PodFailed && p.Status.Reason == "OutOfcpu":
				failed++
			case p.Status.Phase == v1.PodPending && p.Status.Reason == "WaitingAfterRejections":
				held++
			}
		}
	}
	n.Eventually("pods are rejected, and those in their place held back", func() error {
		if look(); failed < controllers || held < controllers*(replicas-1) {
			return fmt.Errorf("%d were rejected, %d are held back", failed, held)
		}
		return nil
	})
	c.Apply(bound(n.Name, "small", ""))
	await(t, c, c.Namespace, "small", runs)
	time.Sleep(time.Until(began.Add(55 * time.Second)))
	look()
	passed := time.Since(began)
	if most := 6 * (1 + int(passed/time.Minute)); failed > most {
		t.Errorf("%d pods were rejected in %s, want at most %d", failed, passed, most)
	}
	if most := failed + controllers*replicas + 1; len(all) > most {
		t.Errorf("there are %d pods, want at most %d", len(all), most)
	}
	for _, p := range all {
		if p.Status.Reason == "WaitingAfterRejections" &&
			!strings.Contains(p.Status.Message, "OutOfcpu") {
			t.Errorf("%s says %q", p.Name, p.Status.Message)
		}
	}
}
