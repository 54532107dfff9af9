package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// gpuStrategy is a way to run the GPU plugin, and what a container gets from it.
type gpuStrategy struct {
	args, orders []string
	file         string // the plugin's configuration; {dir} stands for the node's folder
	late         string // a file in that folder; nothing is healthy before it exists
	resource     string
	devices      int // the number that the plugin offers
	count        int // the number that the pod requests
	check        func(c *runtimeapi.ContainerConfig) error
}

var gpuStrategies = map[string]gpuStrategy{
	"envvar, index": {
		args:     []string{"--device-id-strategy=index"},
		resource: nvidiaGPU, devices: 8, count: 2,
		check: func(c *runtimeapi.ContainerConfig) error {
			return wantText(variable(c, visibleGPUs), "0,1")
		},
	},
	"volume-mounts, index": {
		args:     []string{"--device-list-strategy=volume-mounts", "--device-id-strategy=index"},
		resource: nvidiaGPU, devices: 8, count: 2,
		check: func(c *runtimeapi.ContainerConfig) error {
			const dir = "/var/run/nvidia-container-devices"
			return wantText(variable(c, visibleGPUs)+" "+mountedBelow(c, dir), dir+" "+dir+"/0 "+dir+"/1")
		},
	},
	"cdi-cri, uuid": {
		args:     []string{"--device-list-strategy=cdi-cri", "--cdi-driver-files=false"},
		resource: nvidiaGPU, devices: 8, count: 2,
		check: func(c *runtimeapi.ContainerConfig) error {
			var names []string
			for _, d := range c.GetCDIDevices() {
				names = append(names, d.GetName())
			}
			if len(names) != 2 || !strings.HasPrefix(names[0], "k8s.device-plugin.nvidia.com/gpu=GPU-") {
				return fmt.Errorf("CDI devices %q", names)
			}
			return nil
		},
	},
	"cdi-annotations, index": {
		args: []string{"--device-list-strategy=cdi-annotations", "--device-id-strategy=index",
			"--cdi-driver-files=false"},
		resource: nvidiaGPU, devices: 8, count: 2,
		check: func(c *runtimeapi.ContainerConfig) error {
			const kind = "k8s.device-plugin.nvidia.com/gpu="
			return wantText(c.GetAnnotations()["cdi.k8s.io/nvidia-device-plugin_0"], kind+"0,"+kind+"1")
		},
	},
	"single": { // every GPU is divided while the plugin runs
		args: []string{"--mig-strategy=single"}, orders: dividedGPUs("1g.10gb=7"),
		resource: nvidiaGPU, devices: 56, count: 2,
		check: func(c *runtimeapi.ContainerConfig) error {
			ids := strings.Split(variable(c, visibleGPUs), ",")
			if len(ids) != 2 || !strings.HasPrefix(ids[0], "MIG-") || !strings.HasPrefix(ids[1], "MIG-") {
				return fmt.Errorf("it sees %q", ids)
			}
			return nil
		},
	},
	"mixed, shared": {
		file: `version: v1
flags: {migStrategy: mixed}
sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/mig-3g.40gb, replicas: 2}]}}`,
		orders: dividedGPUs("3g.40gb=1"), resource: "nvidia.com/mig-3g.40gb.shared",
		devices: 16, count: 2,
		check: func(c *runtimeapi.ContainerConfig) error {
			if ids := strings.Split(variable(c, visibleGPUs), ","); len(ids) != 2 ||
				!strings.HasPrefix(ids[0], "MIG-") {
				return fmt.Errorf("it sees %q", ids)
			}
			return nil
		},
	},
	"MPS": { // the control daemon comes late
		file: `version: v1
flags: {mpsRoot: "{dir}/mps"}
sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}`,
		late: "mps/" + nvidiaGPU + "/pipe/control", resource: nvidiaGPU, devices: 32, count: 1,
		check: func(c *runtimeapi.ContainerConfig) error {
			const pipe = "/mps/" + nvidiaGPU + "/pipe"
			return wantText(variable(c, "CUDA_MPS_PIPE_DIRECTORY")+" "+mountedBelow(c, "/mps")+" "+
				mountedBelow(c, "/dev/shm"), pipe+" "+pipe+" /dev/shm")
		},
	},
}

const visibleGPUs = "NVIDIA_VISIBLE_DEVICES"

// dividedGPUs returns the orders that divide all eight GPUs of a machine.
func dividedGPUs(into string) (orders []string) {
	for i := range 8 {
		orders = append(orders, fmt.Sprintf("mig %d on", i), fmt.Sprintf("divide %d %s", i, into))
	}
	return orders
}

func wantText(got, want string) error {
	if got != want {
		return fmt.Errorf("it has %q, want %q", got, want)
	}
	return nil
}

func variable(c *runtimeapi.ContainerConfig, name string) string {
	at := slices.IndexFunc(c.GetEnvs(), func(v *runtimeapi.KeyValue) bool { return v.GetKey() == name })
	if at < 0 {
		return ""
	}
	return string(c.GetEnvs()[at].GetValue())
}

// mountedBelow returns the container paths of mounts at or below a path, sorted.
func mountedBelow(c *runtimeapi.ContainerConfig, path string) string {
	var paths []string
	for _, m := range c.GetMounts() {
		if p := m.GetContainerPath(); p == path || strings.HasPrefix(p, path+"/") {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	return strings.Join(paths, " ")
}

// Each way to offer GPUs and to name a container's GPUs to a runtime works through the agent, and
// the built plugin passes the plugin checks with it.
func TestGPUStrategies(t *testing.T) {
	t.Parallel()
	for name, s := range gpuStrategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			specs := t.TempDir()
			n := harness.NewWith(t, crisim.Config{CDIDirs: []string{specs}})
			n.Start()
			args := append(slices.Clone(s.args), "--cdi-dir="+specs)
			if s.file != "" {
				path := filepath.Join(n.Dir, "gpus.yaml")
				text := strings.ReplaceAll(s.file, "{dir}", n.Dir)
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				args = append(args, "--config-file="+path)
			}
			_, do := gpuPlugin(t, n, args...)
			for _, order := range s.orders {
				do(order)
			}
			if s.late != "" {
				awaitHealthy(n, s.resource, 0, s.devices)
				putEmpty(t, filepath.Join(n.Dir, s.late))
			}
			awaitHealthy(n, s.resource, s.devices, s.devices)
			n.Pod("app", limited("app", fmt.Sprintf("cpu: 1, %s: %d", s.resource, s.count)))
			n.AwaitPhase("app-node", v1.PodRunning)
			if err := s.check(container(t, n, "app-node", "main").Config); err != nil {
				t.Error(err)
			}
		})
	}
}

// awaitHealthy waits until a plugin lists all devices and this number of them are healthy.
func awaitHealthy(n *harness.Node, resource string, healthy, all int) {
	n.Eventually(fmt.Sprintf("%d of %d are healthy", healthy, all), func() error {
		var peers []devicemanager.Peer
		if err := json.Unmarshal([]byte(n.Get("/plugins")), &peers); err != nil {
			return err
		}
		for _, p := range peers {
			if p.Resource == resource && p.Healthy == healthy && p.Devices == all {
				return nil
			}
		}
		return fmt.Errorf("the plugins are %+v", peers)
	})
}

// putEmpty makes an empty file and its folders.
func putEmpty(t *testing.T, path string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, nil, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The built GPU plugin passes the plugin checks, whichever way it names devices.
func TestPluginCheckOfGPUPlugin(t *testing.T) {
	t.Parallel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := scratch.Dir(t)
	plugin := harness.GPUPlugin(t)
	for _, args := range []string{"--mock=dgxh100", "--mock=pcie8 --pass-device-specs " +
		"--device-list-strategy=envvar,volume-mounts,cdi-annotations,cdi-cri --cdi-driver-files=false " +
		"--cdi-dir=" + dir} {
		out, err := exec.CommandContext(t.Context(), binary, "plugin", "check",
			"--topology-from=fixture:dgx-h100", "--cdi-dir="+dir, "--exec",
			plugin+" --kubelet-socket={dir}/kubelet.sock "+args).CombinedOutput()
		if err != nil || !strings.Contains(string(out), " 0 failed, 0 with warnings") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}
