package crisim

import (
	"encoding/json"
	"fmt"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// inspection is the additional content of a verbose status, in containerd's form: the container's
// configuration, and the parts of the OCI spec that follow from it.
type inspection struct {
	SandboxID   string                      `json:"sandboxID"`
	Config      *runtimeapi.ContainerConfig `json:"config"`
	RuntimeSpec *oci.Spec                   `json:"runtimeSpec"`
}

// inspect returns the info of a container, as "crictl inspect" shows it.
func inspect(c *container) (map[string]string, error) {
	text, err := json.Marshal(inspection{c.sandbox.id, c.config, runtimeSpec(c.config)})
	if err != nil {
		return nil, fmt.Errorf("encode info of container %s: %w", c.id, err)
	}
	return map[string]string{"info": string(text)}, nil
}

func runtimeSpec(cfg *runtimeapi.ContainerConfig) *oci.Spec {
	out := &oci.Spec{
		Version: oci.Version,
		Process: &oci.Process{
			Args: append(cfg.GetCommand(), cfg.GetArgs()...), Cwd: cfg.GetWorkingDir(),
		},
		Linux: &oci.Linux{},
	}
	for _, e := range cfg.GetEnvs() {
		out.Process.Env = append(out.Process.Env, fmt.Sprintf("%s=%s", e.GetKey(), e.GetValue()))
	}
	for _, m := range cfg.GetMounts() {
		mode := "rw"
		switch {
		case m.GetRecursiveReadOnly():
			mode = "rro"
		case m.GetReadonly():
			mode = "ro"
		}
		out.Mounts = append(out.Mounts, oci.Mount{
			Destination: m.GetContainerPath(), Type: "bind", Source: m.GetHostPath(),
			Options: []string{"rbind", mode},
		})
	}
	for _, d := range cfg.GetDevices() {
		out.Linux.Devices = append(out.Linux.Devices, device(d))
	}
	return out
}

// device describes the device node at the host's path, as far as it can be read.
func device(d *runtimeapi.Device) oci.LinuxDevice {
	out := oci.LinuxDevice{Path: d.GetContainerPath()}
	var stat unix.Stat_t
	if err := unix.Stat(d.GetHostPath(), &stat); err != nil {
		return out
	}
	out.Major, out.Minor = int64(unix.Major(stat.Rdev)), int64(unix.Minor(stat.Rdev))
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		out.Type = "c"
	case unix.S_IFBLK:
		out.Type = "b"
	}
	return out
}
