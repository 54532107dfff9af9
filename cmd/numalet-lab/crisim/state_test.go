package crisim_test

import (
	"encoding/json"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

func TestStateTellsWhatWasAskedFor(t *testing.T) {
	r := newRig(t, crisim.Config{})
	_, id := r.start(sandboxConfig("p"), containerConfig("c"))
	r.must(r.run.UpdateContainerResources(r.ctx, id, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: "1"},
	}))
	c, ok := r.state().Container("p", "c")
	if !ok || !c.Running() || c.Subject.ID != id || c.CPUs != "1" || c.Subject.UID != "uid-p" {
		t.Errorf("container is %+v", c)
	}
	about, err := json.Marshal(c.Subject)
	r.must(err)
	text, err := json.Marshal(c)
	r.must(err)
	begins := strings.TrimSuffix(string(about), "}") + `,"sandboxID":"` + c.SandboxID + `","state":`
	if !strings.HasPrefix(string(text), begins) {
		t.Errorf("the container is told as %s, want %s...", text, begins)
	}
	if c.Resources.GetCpuShares() != 512 {
		t.Errorf("shares are %d after an update of the cpuset, want 512",
			c.Resources.GetCpuShares())
	}
	if got := c.Env()["NAME"]; got != "c" {
		t.Errorf("env NAME is %q", got)
	}
	r.must(r.order("/exit",
		fields{"container": "p/c", "code": 3, "reason": "OOMKilled"}))
	c, _ = r.state().Container("p", "c")
	if c.Running() || c.Exit == nil || c.Exit.Code != 3 || c.Exit.Reason != "OOMKilled" {
		t.Errorf("after exit: %+v", c)
	}
	if err := r.order("/exit", fields{"container": "p/c"}); err == nil {
		t.Error("a container exited twice")
	}
}
