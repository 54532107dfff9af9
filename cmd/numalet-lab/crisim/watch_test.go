package crisim_test

import (
	"fmt"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

func TestWatchTellsEveryChangeInOrder(t *testing.T) {
	r := newRig(t, crisim.Config{})
	_, first := r.start(sandboxConfig("early"), containerConfig("c"))
	var reported []string
	r.server.Watch(func(c crisim.Container) {
		reported = append(reported,
			fmt.Sprintf("%s/%s %s on %s", c.Subject.Pod, c.Subject.Container, c.State, c.CPUs))
	})
	_, id := r.start(sandboxConfig("late"), containerConfig("c"))
	for _, err := range []error{
		r.run.UpdateContainerResources(r.ctx, id, &runtimeapi.ContainerResources{
			Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: "3"},
		}),
		r.run.StopContainer(r.ctx, id, 1),
		r.run.RemoveContainer(r.ctx, id),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r.server.Watch(nil)
	if err := r.run.RemoveContainer(r.ctx, first); err != nil {
		t.Fatal(err)
	}
	want := []string{"early/c RUNNING on 0-1", "late/c CREATED on 0-1", "late/c RUNNING on 0-1",
		"late/c RUNNING on 3", "late/c EXITED on 3", "late/c REMOVED on 3"}
	if !slices.Equal(reported, want) {
		t.Errorf("told\n%q\nwant\n%q", reported, want)
	}
}
