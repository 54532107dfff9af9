package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"
)

// hostWith returns a root with these files.
func hostWith(t *testing.T, paths ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, path := range paths {
		at := filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const channel = "/dev/nvidia-caps-imex-channels/channel0"

// Answers contain every extra in every configured way, and CDI specs have the devices that answers
// name.
func TestExtras(t *testing.T) {
	all := []Extra{GDRCopy, GDS, MOFED, IMEX}
	set := Defaults()
	set.DevRoot = hostWith(t, "/dev/gdrdrv", "/dev/nvidia-fs0", "/dev/nvidia-fs1",
		"/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm", channel)
	set.CDI.Dir, set.Extras, set.PassDeviceSpecs = t.TempDir(), all, true
	set.List = []ListStrategy{EnvVar, VolumeMounts, CDIAnnotations, CDICRI}
	o := offersOf(gpus(1), set, healthy())
	s := newServing(Config{Settings: set})
	if err := s.writeSpecs(o, nil); err != nil {
		t.Fatal(err)
	}
	got, err := o.resources[GPUResource].answer(GPUResource, o.resources[GPUResource].devices, set)
	if err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string]string{"NVIDIA_GDRCOPY": "enabled",
		"NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled", "NVIDIA_IMEX_CHANNELS": "0"} {
		if got.Envs[variable] != want {
			t.Errorf("%s is %q", variable, got.Envs[variable])
		}
	}
	if mounts := got.Mounts; len(mounts) != 2 || mounts[1].ContainerPath != mountsDir+"/imex/0" {
		t.Errorf("mounts: %v", mounts)
	}
	if nodes := got.Devices; len(nodes) != 2 || nodes[1].ContainerPath != channel ||
		nodes[1].HostPath != filepath.Join(set.DevRoot, channel) {
		t.Errorf("device nodes: %v", nodes)
	}
	cache, err := cdi.NewCache(cdi.WithSpecDirs(set.CDI.Dir), cdi.WithAutoRefresh(false))
	if err != nil {
		t.Fatal(err)
	}
	nodes := 0
	for _, d := range got.CdiDevices {
		found := cache.GetDevice(d.Name)
		if found == nil {
			t.Fatalf("no spec has %s; there are %v", d.Name, cache.ListDevices())
		}
		nodes += len(found.ContainerEdits.DeviceNodes)
	}
	if len(got.CdiDevices) != 1+len(all) || nodes != 1+6 {
		t.Errorf("CDI: %v with %d device nodes", got.CdiDevices, nodes)
	}
}

// What the host lacks: an IMEX channel is skipped, or refused if required; other extras can be
// named nevertheless.
func TestExtrasThatAreNotThere(t *testing.T) {
	set := Defaults()
	set.DevRoot, set.Extras, set.List = hostWith(t), []Extra{GDS, IMEX}, []ListStrategy{CDICRI}
	o := offersOf(gpus(1), set, healthy()).resources[GPUResource]
	got, err := o.answer(GPUResource, o.devices, set)
	if err != nil || len(got.CdiDevices) != 2 ||
		got.CdiDevices[1].Name != "k8s.device-plugin.nvidia.com/gds=all" {
		t.Errorf("%v: %v", got, err)
	}
	if spec := GDS.spec(set.DevRoot); len(spec.Devices) != 1 ||
		len(spec.Devices[0].ContainerEdits.Env) != 1 {
		t.Errorf("%+v is no spec", spec)
	}
	set.IMEXRequired = true
	if _, err := o.answer(GPUResource, o.devices, set); err == nil ||
		!strings.Contains(err.Error(), "IMEX channel 0 is required") {
		t.Errorf("without the channel: %v", err)
	}
}

// A spec follows the device nodes and is written only when they change.
func TestSpecsFollow(t *testing.T) {
	set := Defaults()
	set.DevRoot, set.CDI.Dir = hostWith(t), t.TempDir()
	set.Extras, set.List = []Extra{GDRCopy}, []ListStrategy{CDICRI}
	s, o := newServing(Config{Settings: set}), offersOf(gpus(1), set, healthy())
	file := filepath.Join(set.CDI.Dir, cdiFile("gdrcopy")+".yaml")
	var texts []string
	for _, step := range []func() error{
		func() error { return nil },
		func() error { return os.Remove(file) }, // it only comes back if it is written again
		func() error {
			if err := os.MkdirAll(filepath.Join(set.DevRoot, "dev"), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(set.DevRoot, "/dev/gdrdrv"), nil, 0o600)
		},
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		if err := s.writeSpecs(o, nil); err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(file)
		texts = append(texts, string(text))
	}
	has := []bool{texts[0] != "", texts[1] != "", strings.Contains(texts[2], "gdrdrv")}
	if !slices.Equal(has, []bool{true, false, true}) {
		t.Errorf("%v: %q", has, texts)
	}
}
