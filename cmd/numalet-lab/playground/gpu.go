package playground

import (
	"bytes"
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

// gpuMachine returns the description of the machine around the simulated GPUs; nil: there are none.
func (o Options) gpuMachine(ctx context.Context) ([]byte, error) {
	if o.GPU == "" {
		return nil, nil
	}
	binary, err := gpuBinary()
	if err != nil {
		return nil, err
	}
	text, err := exec.CommandContext(ctx, binary, "--mock="+o.GPU, "--print-machine").Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return nil, fmt.Errorf("--gpu %s: %s", o.GPU, bytes.TrimSpace(failed.Stderr))
	}
	return text, err
}

// playOn has the playground be the described machine, if one is.
func (p *Playground) playOn(machine []byte) error {
	if machine == nil {
		return nil
	}
	p.opts.Machine = filepath.Join(p.dir, "gpu-machine.yaml")
	return os.WriteFile(p.opts.Machine, machine, 0o644)
}

// gpuOrders is the socket on which the plugin of the machine's GPUs listens for orders.
func (p *Playground) gpuOrders() string { return filepath.Join(p.dir, "gpu-orders.sock") }

// offerGPUs returns the plugin for the machine's GPUs.
func (p *Playground) offerGPUs() plugin {
	binary, err := gpuBinary()
	if err != nil {
		panic(err) // gpuMachine found it
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
