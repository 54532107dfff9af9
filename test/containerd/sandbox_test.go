package containerd_test

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testSandboxes: a pod whose sandboxes die gets others, and of the dead ones the last stays.
func testSandboxes(t *testing.T, w world) {
	pod := w.run("undone", simple("--print"))
	client := runtimeapi.NewRuntimeServiceClient(w.dial())
	sandboxes := func() []*runtimeapi.PodSandbox {
		t.Helper()
		list, err := client.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{
			Filter: &runtimeapi.PodSandboxFilter{
				LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(pod.UID)},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	for life := range int32(3) {
		w.awaitContainer(pod.Name, "main", fmt.Sprintf("runs for the %dth time", life+1),
			func(s v1.ContainerStatus) bool {
				return s.RestartCount == life && s.State.Running != nil
			})
		if life == 2 {
			break
		}
		for _, s := range sandboxes() {
			if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
				kill(t, client, s.Id)
			}
		}
	}
	w.Eventually("the first sandbox is removed", func() error {
		if list := sandboxes(); len(list) != 2 {
			return fmt.Errorf("there are %v", list)
		}
		return nil
	})
	w.remove("undone")
}

// kill kills the process that a sandbox is made of.
func kill(t *testing.T, client runtimeapi.RuntimeServiceClient, sandbox string) {
	t.Helper()
	status, err := client.PodSandboxStatus(t.Context(),
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
		t.Fatal(err)
	}
	if info.Pid < 2 {
		t.Fatalf("the sandbox has the process %d", info.Pid)
	}
	if err := syscall.Kill(info.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
