package dra

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

func dynamic(o *Options) { o.Dynamic = true }

// instances returns the MIG devices of a GPU of the machine.
func (b *bench) instances(i int) (out []string) {
	b.t.Helper()
	for _, instance := range stateOf(b.t, b.rig).GPUs[i].Instances {
		out = append(out, fmt.Sprintf("%s@%d", instance.Profile, instance.Start))
	}
	return out
}

// Claims divide a GPU, and what they made goes with them.
func TestDivide(t *testing.T) {
	r := rigOf(t, "dgxh100")
	b := benchOf(t, r, t.TempDir(), dynamic)
	b.look("mig 0 on")
	small, large := claimOf("small", "gpu-0-mig-1g10gb-19-4"), claimOf("large", "gpu-0-mig-3g40gb-9-0")
	got, err := b.prepare(small)
	if err != nil {
		t.Fatal(err)
	}
	nodes := b.resolve(got[0].CDIDeviceIDs[1:])
	if len(nodes) != 3 || nodes[0] != "/dev/nvidia0" ||
		!strings.HasPrefix(nodes[1], "/dev/nvidia-caps/") {
		t.Errorf("the device nodes are %q", nodes)
	}
	if again, err := b.prepare(small); err != nil || fmt.Sprint(again) != fmt.Sprint(got) {
		t.Errorf("at once again, as no snapshot has it yet: %+v, %v", again, err)
	}
	if _, err := b.prepare(large); err != nil {
		t.Fatal(err)
	}
	b.look()
	if again, err := b.prepare(small); err != nil || fmt.Sprint(again) != fmt.Sprint(got) {
		t.Errorf("again: %+v, %v", again, err)
	}
	if has := b.instances(0); !slices.Equal(has, []string{"1g.10gb@4", "3g.40gb@0"}) {
		t.Errorf("the GPU has %q", has)
	}
	for _, claim := range []*resourcev1.ResourceClaim{small, large, small} {
		if err := b.unprepare(claim); err != nil {
			t.Error(err)
		}
	}
	if has := b.instances(0); len(has) > 0 || len(b.files()) > 0 {
		t.Errorf("left behind: %q, %q", has, b.files())
	}
}

// A claim that was allocated anew without having been unprepared loses what it had before.
func TestAllocatedAnew(t *testing.T) {
	b := benchOf(t, rigOf(t, "dgxh100"), t.TempDir(), dynamic)
	b.look("mig 0 on")
	if _, err := b.prepare(claimOf("moves", "gpu-0-mig-1g10gb-19-4", "gpu-1")); err != nil {
		t.Fatal(err)
	}
	b.look()
	if _, err := b.prepare(claimOf("moves", "gpu-0-mig-7g80gb-0-0")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.prepare(claimOf("other", "gpu-1")); err != nil {
		t.Error(err)
	}
	if has := b.instances(0); !slices.Equal(has, []string{"7g.80gb@0"}) || len(b.files()) != 2 {
		t.Errorf("the GPU has %q, the claims %q", has, b.files())
	}
}

// Two claims share a MIG device that was made for the first; it goes with the last.
func TestDivideShared(t *testing.T) {
	b := benchOf(t, rigOf(t, "dgxh100"), t.TempDir(), func(o *Options) {
		o.Dynamic, o.Shares.Unlimited = true, true
	})
	b.look("mig 0 on")
	for _, name := range []string{"a", "b"} {
		claim := claimOf(name, "gpu-0-mig-1g10gb-19-4")
		claim.Status.Allocation.Devices.Results[0].ShareID = new(types.UID("share-" + name))
		if _, err := b.prepare(claim); err != nil {
			t.Fatal(err)
		}
	}
	for n, name := range []string{"a", "b"} {
		if has := b.instances(0); len(has) != 1 {
			t.Errorf("before %s goes: %q", name, has)
		}
		if err := b.unprepare(claimOf(name)); err != nil {
			t.Error(n, err)
		}
	}
	if has := b.instances(0); len(has) > 0 {
		t.Errorf("left behind: %q", has)
	}
}

// stubborn fails the calls that it is told to.
type stubborn struct {
	gpu.Divider
	divide, remove error
}

func (s *stubborn) Divide(uuid string, p gpu.Partition) (gpu.Instance, error) {
	if s.divide != nil {
		return gpu.Instance{}, s.divide
	}
	return s.Divider.Divide(uuid, p)
}

func (s *stubborn) Remove(uuid, instance string) error {
	if s.remove != nil {
		return s.remove
	}
	return s.Divider.Remove(uuid, instance)
}

// Wherever the process is killed, the next one carries on: nothing is lost, and nothing is left.
func TestKilled(t *testing.T) {
	small := claimOf("small", "gpu-0-mig-1g10gb-19-4", "gpu-0-mig-2g20gb-14-0")
	for name, kill := range map[string]func(t *testing.T, b *bench){
		"before the record": func(t *testing.T, b *bench) {
			if _, err := b.prepare(small); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(b.files()[0]); err != nil { // as if it had never been written
				t.Fatal(err)
			}
		},
		"after the record": func(t *testing.T, b *bench) {
			if _, err := b.prepare(small); err != nil {
				t.Fatal(err)
			}
		},
		"between two removals": func(t *testing.T, b *bench) {
			if _, err := b.prepare(small); err != nil {
				t.Fatal(err)
			}
			all, err := b.Records()
			if err != nil {
				t.Fatal(err)
			}
			first := all[small.UID].Devices[0]
			if err := b.rig.Remove(first.Parent, first.ID); err != nil {
				t.Fatal(err)
			}
		},
		"in the middle of the record's file": func(t *testing.T, b *bench) {
			if err := os.WriteFile(filepath.Join(b.dir, "spec.123.tmp"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, next := range []string{"prepare", "unprepare", "another"} {
			t.Run(name+", then "+next, func(t *testing.T) {
				r, dir := rigOf(t, "dgxh100"), t.TempDir()
				b := benchOf(t, r, dir, dynamic)
				b.look("mig 0 on")
				kill(t, b)
				b = benchOf(t, r, dir, dynamic)
				claim := small
				if next != "prepare" {
					if err := b.unprepare(small); err != nil {
						t.Fatal(err)
					}
					b.look()
				}
				if next == "another" {
					claim = claimOf("large", "gpu-0-mig-7g80gb-0-0")
				}
				if next != "unprepare" {
					got, err := b.prepare(claim)
					if err != nil {
						t.Fatal(err)
					}
					for _, d := range got {
						b.resolve(d.CDIDeviceIDs[1:])
					}
					if has := b.instances(0); len(has) != len(got) {
						t.Errorf("the GPU has %q", has)
					}
					if err := b.unprepare(claim); err != nil {
						t.Fatal(err)
					}
				}
				has := b.instances(0)
				if len(has) > 0 && !(name == "before the record" && next == "unprepare") {
					t.Errorf("left behind: %q", has) // else it goes when its place is needed
				}
			})
		}
	}
}

// A claim whose second MIG device cannot be made has none; one whose device is in use is not
// unprepared until it is not.
func TestDivideFails(t *testing.T) {
	b := benchOf(t, rigOf(t, "dgxh100"), t.TempDir(), dynamic)
	b.look("mig 0 on")
	_, err := b.prepare(claimOf("both", "gpu-0-mig-1g10gb-19-4", "gpu-0-mig-7g80gb-0-0"))
	refused(t, err, "in the way")
	if has := b.instances(0); len(has) > 0 || len(b.files()) > 0 {
		t.Errorf("left behind: %q, %q", has, b.files())
	}
	claim := claimOf("used", "gpu-0-mig-1g10gb-19-4")
	if _, err := b.prepare(claim); err != nil {
		t.Fatal(err)
	}
	stuck := &stubborn{Divider: b.rig, remove: errors.New("in use")}
	b.machine.divider = stuck
	b.look()
	refused(t, b.unprepare(claim), "in use")
	b.follow(gpu.State{}) // a new process, which has not read the GPUs yet
	refused(t, b.unprepare(claim), "in use")
	stuck.remove = gpu.ErrNoDriver
	if err := b.unprepare(claim); err != nil {
		t.Errorf("without the driver: %v", err)
	}
}
