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
	if p.opts.DRA && (p.opts.GPU == "" || p.opts.Cluster == "") {
		return errors.New("--dra hands out GPUs by resource claim, which are the API server's: " +
			"give --gpu and --cluster too")
	}
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

// gpuOrders is the socket on which the plugin of the machine's GPUs listens for orders.
func (p *Playground) gpuOrders() string { return filepath.Join(p.dir, "gpu-orders.sock") }

// offerGPUs returns the plugin for the machine's GPUs.
func (p *Playground) offerGPUs() plugin {
	binary, err := gpuBinary()
	if err != nil {
		panic(err) // prepareGPU found it
	}
	machine := []string{"--mock=" + p.opts.GPU,
		"--mock-orders=" + p.gpuOrders()}
	if p.opts.DRA {
		return plugin{driver: gpu.DriverName, binary: binary, args: append(machine,
			"--dra", "--dra-mig=dynamic", "--dra-root-dir="+filepath.Join(p.dir, "root"),
			"--cdi-dir="+p.cdiDirs()[0], "--node-name="+p.opts.node(),
			"--kubeconfig="+p.cluster.kubeconfig)}
	}
	return plugin{resource: gpu.GPUResource, binary: binary, args: append(machine,
		"--kubelet-socket="+filepath.Join(p.dir, "root", "device-plugins", "kubelet.sock"))}
}
