package devicemanager

import (
	"errors"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/test/scratch"
	"github.com/numalet/numalet/topology"
)

// numbers returns the capacity, the allocatable and the cordoned number of GPUs.
func (r *rig) numbers() [3]int {
	g := r.Inventory().Resources[gpu]
	return [3]int{g.Capacity, g.Allocatable, g.Cordoned()}
}

func TestCordon(t *testing.T) {
	path := filepath.Join(scratch.Dir(t), cordon.FileName)
	book, err := cordon.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Cordons: book})
	// before there is a plugin, and for an id that it will not list
	for _, id := range []string{"gpu-3", "gpu-99"} {
		if isNew, err := r.Cordon(t.Context(), cordon.Cordon{Resource: gpu, ID: id}); !isNew ||
			err != nil {
			t.Fatalf("Cordon %s = %v, %v", id, isNew, err)
		}
	}
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	steps := []struct {
		what string
		do   func() error
		want [3]int
	}{
		{"at the start", func() error { return nil }, [3]int{8, 7, 1}},
		{"one more", func() error {
			_, err := r.Cordon(t.Context(), cordon.Cordon{Resource: gpu, ID: "gpu-4"})
			return err
		}, [3]int{8, 6, 2}},
		{"once more", func() error {
			_, err := r.Cordon(t.Context(), cordon.Cordon{Resource: gpu, ID: "gpu-4"})
			return err
		}, [3]int{8, 6, 2}},
		{"one less", func() error {
			_, err := r.Uncordon(t.Context(), gpu, "gpu-3")
			return err
		}, [3]int{8, 7, 1}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		if got := r.numbers(); got != s.want { // no wait: Cordon returns when readers see it
			t.Errorf("%s: %v, want %v", s.what, got, s.want)
		}
	}
	// A cordoned device that is unhealthy counts as missing once.
	plugin.must(plugin.SetHealth(t.Context(), false, "gpu-4"))
	r.until("the cordoned device is unhealthy", func(i Inventory) bool {
		return i.Health(gpu, "gpu-4") == v1.ResourceHealthStatusUnhealthy
	})
	if got := r.numbers(); got != [3]int{8, 7, 1} {
		t.Errorf("unhealthy too: %v", got)
	}
	plugin.must(plugin.SetHealth(t.Context(), true, "gpu-4"))
	// The numbers of an absent plugin stay.
	plugin.stop()
	r.until("the plugin is away", func(i Inventory) bool { return !i.Resources[gpu].Connected })
	if got := r.numbers(); got != [3]int{8, 7, 1} {
		t.Errorf("away: %v", got)
	}
	r.stop()
	if book, err = cordon.Open(path); err != nil {
		t.Fatal(err)
	}
	again := newRig(t, Config{Dirs: Dirs{Plugins: r.dir}, Cordons: book})
	again.plugin(sim.Config{Resource: gpu})
	again.untilConnected(gpu)
	if got := again.numbers(); got != [3]int{8, 7, 1} {
		t.Errorf("after a restart: %v", got)
	}
}

// A caller that gives up before readers see the change can ask again.
func TestUncordonIsAskedAgain(t *testing.T) {
	book, err := cordon.Open(filepath.Join(scratch.Dir(t), cordon.FileName))
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, Config{Cordons: book})
	r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	if _, err := r.Cordon(t.Context(), cordon.Cordon{Resource: gpu, ID: "gpu-3"}); err != nil {
		t.Fatal(err)
	}
	if was, err := book.Remove(gpu, "gpu-3"); !was || err != nil { // as the first call left it
		t.Fatalf("Remove = %v, %v", was, err)
	}
	if was, err := r.Uncordon(t.Context(), gpu, "gpu-3"); was || err != nil {
		t.Errorf("Uncordon = %v, %v", was, err)
	}
	if got := r.numbers(); got != [3]int{8, 8, 0} {
		t.Errorf("asked again: %v", got)
	}
}

// A container keeps a cordoned device that it holds. Another one does not get it, even where it
// would fit best.
func TestCordonedDevicesAreNotChosen(t *testing.T) {
	r := Resource{Name: gpu, Connected: true, Devices: parseDevices(t, "a@0 b@0 c@1")}
	r.Devices[0].Cordoned = true
	req := Request{Resource: r, N: 2, Hint: topology.Hint{Any: true}}
	if ids, err := Choose(req); err != nil || ids[0] != "b" || ids[1] != "c" {
		t.Errorf("chosen %v, %v", ids, err)
	}
	for _, hint := range hintsOf(topology.NewNodeSet(0, 1), req) {
		if hint.Nodes == topology.NewNodeSet(0) {
			t.Error("node 0 is offered for two devices, and has one")
		}
	}
	req.Reusable, req.Taken = []string{"a"}, sets.New("a")
	if ids, err := Choose(req); err != nil || ids[0] != "a" {
		t.Errorf("with one to be used again %v, %v", ids, err)
	}
	req.Reusable, req.N = nil, 3
	_, err := Choose(req)
	var few *UnavailableError
	if !errors.As(err, &few) || few.Cordoned != 1 || few.Available != 2 {
		t.Errorf("too many: %v", err)
	}
}
