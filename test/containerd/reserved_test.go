package containerd_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/cgroups"
)

// TestReservedCgroups: the daemons of the system and of Kubernetes are limited in the cgroups that
// are named, to what is reserved for them; the agent does not start without such a cgroup, and says
// which.
func TestReservedCgroups(t *testing.T) {
	w := newWorld(t)
	daemons, kube := filepath.Join(w.cgroup, "daemons"), filepath.Join(w.cgroup, "kube")
	w.Settings["enforceNodeAllocatable"] = []string{
		"pods", "system-reserved", "kube-reserved-compressible",
	}
	w.Settings["systemReserved"] = map[string]string{"cpu": "1", "memory": "256Mi", "pid": "300"}
	w.Settings["systemReservedCgroup"] = daemons
	w.Settings["kubeReserved"] = map[string]string{"cpu": "250m", "memory": "32Mi"}
	w.Settings["kubeReservedCgroup"] = kube
	if err := cgroups.CreateRoot(daemons); err != nil {
		t.Fatal(err)
	}
	w.StartOnly()
	w.Eventually("the agent ends for want of a cgroup", func() error {
		if exited, how := w.Exited(); !exited || how == nil {
			return fmt.Errorf("exited %v: %v", exited, how)
		}
		return nil
	})
	if said := w.LogTail(20); !strings.Contains(said, kube+" does not exist") {
		t.Errorf("it does not say which:\n%s", said)
	}
	if err := cgroups.CreateRoot(kube); err != nil {
		t.Fatal(err)
	}
	w.Start()
	w.expect(daemons, shares("1024", "39"), memory("268435456"), processes("300"))
	w.expect(kube, shares("256", "10"), noMemory(), processes("max"))
}
