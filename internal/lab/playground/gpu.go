package playground

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

// gpuBinary returns the path of the GPU plugin, which is built into the same folder as numalet.
func gpuBinary() (string, error) {
	executable, err := os.Executable()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(filepath.Dir(executable), "numalet-gpu")
	if _, err := os.Stat(binary); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no %s: build it with \"make build\"", binary)
	}
	return binary, nil
}

// prepareGPU writes the machine around the simulated GPUs to a file and plays on that machine.
func (p *Playground) prepareGPU(ctx context.Context) error {
	if p.opts.GPU == "" {
		return nil
	}
	if p.opts.Machine != "" || p.opts.Runtime == Containerd {
		return errors.New("--gpu brings a simulated machine of its own: leave out " +
			"--topology-from and --runtime=containerd")
	}
	binary, err := gpuBinary()
	if err != nil {
		return err
	}
	text, err := exec.CommandContext(ctx, binary, "--mock="+p.opts.GPU, "--print-machine").Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return fmt.Errorf("--gpu %s: %s", p.opts.GPU, failed.Stderr)
	}
	if err != nil {
		return err
	}
	p.opts.Machine = filepath.Join(p.dir, "gpu-machine.yaml")
	return os.WriteFile(p.opts.Machine, text, 0o644)
}

// offerGPUs returns the plugin for the machine's GPUs. It listens for orders on gpu-orders.sock in
// the playground's directory.
func (p *Playground) offerGPUs() plugin {
	binary, err := gpuBinary()
	if err != nil {
		panic(err) // prepareGPU found it
	}
	return plugin{resource: gpu.GPUResource, binary: binary, args: []string{
		"--mock=" + p.opts.GPU,
		"--kubelet-socket=" + filepath.Join(p.dir, "root", "device-plugins", "kubelet.sock"),
		"--mock-orders=" + filepath.Join(p.dir, "gpu-orders.sock"),
	}}
}
