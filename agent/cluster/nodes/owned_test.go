package nodes

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

func offering(name string) devicemanager.Inventory {
	return devicemanager.Inventory{Resources: map[string]devicemanager.Resource{
		name: {Name: name, Capacity: 8, Allocatable: 7},
	}}
}

// TestOwned: a resource is ours from when a plugin offers it until the node is without it, whatever
// becomes of the agent in between; then it is whose ever puts it there.
func TestOwned(t *testing.T) {
	root := t.TempDir()
	open := func() *Owned {
		o, err := OpenOwned(root, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	o := open()
	d := o.Devices(offering("x.io/gpu"))
	if c, a := d.Capacity["x.io/gpu"], d.Allocatable["x.io/gpu"]; c.Value() != 8 ||
		a.Value() != 7 || len(d.Dead) != 0 {
		t.Errorf("offered: %+v", d)
	}
	o = open()
	d = o.Devices(devicemanager.Inventory{})
	if a, named := d.Allocatable["x.io/gpu"]; !named || !a.IsZero() || len(d.Dead) != 0 ||
		len(d.Capacity) != 0 {
		t.Errorf("after a restart, of a plugin of which nothing is known: %+v", d)
	}
	o.began = time.Now().Add(-2 * time.Hour)
	d = o.Devices(devicemanager.Inventory{})
	if !slices.Equal(d.Dead, []v1.ResourceName{"x.io/gpu"}) {
		t.Errorf("when its plugin had its time: %+v", d)
	}
	o.Wrote(d)
	if d := o.Devices(devicemanager.Inventory{}); len(d.Dead) != 0 {
		t.Errorf("when the node is without it: %+v", d)
	}
	if d := open().Devices(devicemanager.Inventory{Gone: []string{"x.io/gpu"}}); len(d.Dead) != 0 {
		t.Errorf("after the next restart: %+v", d)
	}
}

// TestGone: a resource of this run is dead as soon as its plugin's grace is over, and lives when it
// is back.
func TestGone(t *testing.T) {
	o, err := OpenOwned(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	o.Devices(offering("x.io/gpu"))
	d := o.Devices(devicemanager.Inventory{Gone: []string{"x.io/gpu"}})
	if _, there := d.Capacity["x.io/gpu"]; there || len(d.Dead) != 1 {
		t.Errorf("gone: %+v", d)
	}
	back := offering("x.io/gpu")
	back.Gone = []string{"x.io/gpu"}
	if d := o.Devices(back); len(d.Dead) != 0 || len(d.Capacity) != 1 {
		t.Errorf("back: %+v", d)
	}
}

func TestDamagedFile(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, OwnedFile), []byte("[\"x"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := OpenOwned(root, 0)
	if err == nil || !strings.Contains(err.Error(), "which resources are ours") {
		t.Errorf("error %v", err)
	}
	if d := o.Devices(offering("x.io/gpu")); len(d.Capacity) != 1 {
		t.Errorf("%+v", d)
	}
	if left, _ := filepath.Glob(filepath.Join(root, OwnedFile+".corrupt-*")); len(left) != 1 {
		t.Errorf("moved aside: %v", left)
	}
}

// What could not be written is written with a later status that has nothing new.
func TestOwnedIsWrittenAgain(t *testing.T) {
	root := filepath.Join(t.TempDir(), "missing")
	o, err := OpenOwned(root, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	names := func() []v1.ResourceName {
		t.Helper()
		again, err := OpenOwned(root, 0)
		if err != nil {
			t.Fatal(err)
		}
		return again.Devices(devicemanager.Inventory{}).Dead
	}
	o.Devices(offering("x.io/gpu"))
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := names(); len(got) > 0 {
		t.Fatalf("%v are on the disk, which could not be written", got)
	}
	o.Devices(offering("x.io/gpu"))
	if got := names(); !slices.Equal(got, []v1.ResourceName{"x.io/gpu"}) {
		t.Errorf("%v are on the disk", got)
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	gone := o.Devices(devicemanager.Inventory{Gone: []string{"x.io/gpu"}})
	o.Wrote(gone)
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	o.Devices(devicemanager.Inventory{})
	if raw, err := os.ReadFile(filepath.Join(root, OwnedFile)); err != nil || string(raw) != "[]\n" {
		t.Errorf("after the last has gone the file has %q, %v", raw, err)
	}
}
