package actuator

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// A container with a target sees the processes of the newest container of that name.
func TestTarget(t *testing.T) {
	pod := podtest.New("", podtest.Containers("sees?", "lost?", "alone?"))
	for i, target := range []string{"web", "gone"} {
		pod.Spec.EphemeralContainers[i].TargetContainerName = target
	}
	observed := cri.Pod{
		Containers: []cri.Container{{ID: "new", Name: "web"}, {ID: "old", Name: "web"}}}
	for name, want := range map[string]string{"sees": "new", "alone": "", "web": ""} {
		if got, err := targetOf(pod, observed, name); got != want || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	var why *cri.StartError
	if _, err := targetOf(pod, observed, "lost"); !errors.As(err, &why) ||
		why.Reason != cri.ReasonCreateContainerConfig ||
		why.Message != "unable to find target container gone" {
		t.Errorf("a target that is not there: %v", err)
	}
	for mode, spec := range map[runtimeapi.NamespaceMode]v1.PodSpec{
		runtimeapi.NamespaceMode_TARGET: {},
		runtimeapi.NamespaceMode_POD:    {ShareProcessNamespace: ptr.To(true)},
		runtimeapi.NamespaceMode_NODE:   {HostPID: true},
	} {
		config, err := cri.ContainerConfig(&v1.Pod{Spec: spec}, &v1.Container{Name: "sees"},
			cri.ContainerOptions{Target: "new"})
		if err != nil {
			t.Fatal(err)
		}
		ns := config.Linux.SecurityContext.NamespaceOptions
		if ns.Pid != mode || (ns.TargetId == "new") != (mode == runtimeapi.NamespaceMode_TARGET) {
			t.Errorf("namespaces %v, want %v", ns, mode)
		}
	}
}
