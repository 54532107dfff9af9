package gpu

import (
	"slices"
	"testing"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// The spec has the names of the answers, is found by runtimes, and is removed when nothing is left.
func TestCDISpec(t *testing.T) {
	s := gpus(2, nil, []string{"1g.10gb"})
	s.StandIn = "/dev/null"
	set := Settings{MIG: MIGMixed, ID: ByIndex, DevRoot: t.TempDir()}
	var units []*unit
	for _, o := range offersOf(s, set, healthy()).resources {
		for _, d := range o.devices {
			units = append(units, d.unit)
		}
	}
	dir := t.TempDir()
	if err := writeCDI(dir, "gpu", cdiSpec(units, set, nil)); err != nil {
		t.Fatal(err)
	}
	found := func(name string) *cdi.Device {
		cache, err := cdi.NewCache(cdi.WithSpecDirs(dir), cdi.WithAutoRefresh(false))
		if err != nil {
			t.Fatal(err)
		}
		return cache.GetDevice(cdiKind + "=" + name)
	}
	if d := found("0"); d == nil || len(d.ContainerEdits.DeviceNodes) != 1 ||
		d.ContainerEdits.DeviceNodes[0].Path != "/dev/nvidia0" {
		t.Errorf("GPU 0: %+v", d)
	}
	if d := found("1:0"); d == nil || len(d.ContainerEdits.DeviceNodes) != 2 ||
		d.ContainerEdits.DeviceNodes[1].Path != "/dev/cap0" {
		t.Errorf("the MIG device: %+v", d)
	}
	if err := writeCDI(dir, "gpu", nil); err != nil || found("0") != nil {
		t.Errorf("after it was taken away: %v, %v", err, found("0"))
	}
}

// The spec tells NVIDIA's runtime not to add the driver's files exactly if it has them.
func TestWhoAddsDriverFiles(t *testing.T) {
	set := Settings{ID: ByIndex, DevRoot: t.TempDir(), List: []ListStrategy{CDICRI}}
	var units []*unit
	for _, d := range offersOf(gpus(1), set, healthy()).resources[GPUResource].devices {
		units = append(units, d.unit)
	}
	const void = visibleDevices + "=void"
	files := &specs.ContainerEdits{Env: []string{"A=b"}}
	if env := cdiSpec(units, set, files).ContainerEdits.Env; !slices.Equal(env, []string{void, "A=b"}) {
		t.Errorf("with the files: %q", env)
	}
	if env := cdiSpec(units, set, nil).ContainerEdits.Env; len(env) > 0 {
		t.Errorf("without: %q", env)
	}
	for _, e := range []Extra{GDRCopy, GDS, MOFED, IMEX} {
		if env := e.spec(set.DevRoot).ContainerEdits.Env; len(env) > 0 {
			t.Errorf("%s: %q", e, env)
		}
	}
}
