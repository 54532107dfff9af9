package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestUserNamespaceIsKept: a pod with a user namespace has ids that no other pod has. Its next
// container has the same ids after the agent was killed, and they are free once the pod is gone.
func TestUserNamespaceIsKept(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	first := func(pod string) uint32 {
		t.Helper()
		users := container(t, n, pod, "main").Config.GetLinux().GetSecurityContext().
			GetNamespaceOptions().GetUsernsOptions()
		if len(users.GetUids()) != 1 || users.GetUids()[0].GetLength() != 65536 {
			t.Fatalf("%s has %+v", pod, users)
		}
		return users.GetUids()[0].GetHostId()
	}
	for _, name := range []string{"a", "b"} {
		n.Pod(name, manifestOf(name, "hostUsers: false\n  "+
			"containers: [{name: main, image: sim.local/app}]"))
		n.AwaitPhase(name+"-node", v1.PodRunning)
	}
	before := first("a-node")
	if other := first("b-node"); other == before || before < 65536 || before%65536 != 0 {
		t.Errorf("the pods have ids from %d and %d on", before, other)
	}
	id := container(t, n, "a-node", "main").Subject.ID
	n.Kill()
	n.Start()
	if err := n.Runtime.KillSandbox("default/a-node"); err != nil {
		t.Fatal(err)
	}
	n.Eventually("the pod has another container", func() error {
		now, ok := n.Runtime.State().Container("a-node", "main")
		if !ok || now.Subject.ID == id || !now.Running() {
			return fmt.Errorf("it has %+v", now.Subject)
		}
		return nil
	})
	if now := first("a-node"); now != before {
		t.Errorf("the pod's ids began at %d and begin at %d", before, now)
	}
	pods, err := n.Pods()
	if err != nil {
		t.Fatal(err)
	}
	uid := pods["a-node"].UID
	file := filepath.Join(n.Root, "pods", string(uid), "userns")
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
	n.RemovePod("a")
	n.AwaitGone("a-node")
	n.Eventually("the pod's ids are free", func() error {
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			return fmt.Errorf("%s: %v", file, err)
		}
		return nil
	})
}
