package crisim_test

import (
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

// A CDI device is available as soon as a spec in the directories names it and its nodes exist.
func TestCDIDevices(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t, crisim.Config{CDIDirs: []string{dir}})
	sandbox, err := r.run.RunPodSandbox(r.ctx, sandboxConfig("p"), "")
	r.must(err)
	create := func(name, device string) error {
		ctr := containerConfig(name)
		ctr.CDIDevices = []*runtimeapi.CDIDevice{{Name: device}}
		_, err := r.run.CreateContainer(r.ctx, sandbox, ctr, sandboxConfig("p"))
		return err
	}
	if err := create("early", "example.com/gpu=gpu-0"); err == nil {
		t.Error("a device was given that no spec names")
	}
	spec := `{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [
		{"name": "gpu-0", "containerEdits": {"deviceNodes": [{"path": "/dev/null"}]}},
		{"name": "gpu-1", "containerEdits": {"deviceNodes": [{"path": "/dev/nosuch"}]}}]}`
	r.must(os.WriteFile(filepath.Join(dir, "gpu.json"), []byte(spec), 0o600))
	r.must(create("good", "example.com/gpu=gpu-0"))
	if err := create("nodeless", "example.com/gpu=gpu-1"); err == nil {
		t.Error("a device was given whose node is not there")
	}
}
