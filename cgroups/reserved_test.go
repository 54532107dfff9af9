package cgroups

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReservedResources(t *testing.T) {
	all := list("cpu=500m memory=64Mi pid=100 ephemeral-storage=1Gi")
	want := Resources{Shares: 512, Memory: 64 << 20, Pids: 100}
	if diff := cmp.Diff(want, ReservedResources(all, false)); diff != "" {
		t.Errorf("all of it (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Resources{Shares: 512}, ReservedResources(all, true)); diff != "" {
		t.Errorf("what can be squeezed (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(Resources{}, ReservedResources(nil, false)); diff != "" {
		t.Errorf("nothing (-want +got):\n%s", diff)
	}
}

// TestEnforceReserved: the cgroup of daemons gets what is reserved for them, on the kernel of this
// machine; a missing one is named, and not made.
func TestEnforceReserved(t *testing.T) {
	root, dirs := ownRoot(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tree, err := New(Config{Root: root, MemoryQoS: MemoryQoS{On: true}})
	if err != nil {
		t.Fatal(err)
	}
	r := ReservedResources(list("cpu=500m memory=64Mi pid=100"), false)
	daemons := root + "/daemons"
	err = tree.EnforceReserved(ctx, daemons, r)
	if err == nil || !strings.Contains(err.Error(), daemons) {
		t.Errorf("a cgroup that is not there: %v", err)
	}
	if made := slices.ContainsFunc(dirs, func(dir string) bool {
		return exists(filepath.Join(dir, "daemons"))
	}); made {
		t.Error("it was made")
	}
	if err := CreateRoot(daemons); err != nil {
		t.Fatal(err)
	}
	if err := tree.EnforceReserved(ctx, daemons, r); err != nil {
		t.Fatal(err)
	}
	if !tree.unified {
		expect(t, defaultMount+"/cpu"+daemons, "cpu.shares", "512")
		expect(t, defaultMount+"/memory"+daemons, "memory.limit_in_bytes", "67108864")
		expect(t, defaultMount+"/pids"+daemons, "pids.max", "100")
		return
	}
	expect(t, defaultMount+daemons, "cpu.weight", "20", "memory.max", "67108864",
		"memory.min", "67108864", "pids.max", "100")
}

// TestReservedMemoryIsKept: with memory QoS the kernel does not take from the daemons the memory that is
// reserved for them; where only CPUs are enforced, and without memory QoS, it may.
func TestReservedMemoryIsKept(t *testing.T) {
	reserved := list("cpu=500m memory=64Mi")
	for _, tc := range []struct {
		on, compressible bool
		min              string
	}{{true, false, "67108864"}, {true, true, ""}, {false, false, ""}} {
		h := newHost(t).unified(allControllers, "/kubepods", "/daemons")
		tree := h.tree(Config{MemoryQoS: MemoryQoS{On: tc.on}})
		r := ReservedResources(reserved, tc.compressible)
		if err := tree.EnforceReserved(t.Context(), "/daemons", r); err != nil {
			t.Fatal(err)
		}
		for file, want := range map[string]string{"memory.min": tc.min, "memory.low": ""} {
			got, _ := os.ReadFile(filepath.Join(h.mount, "daemons", file)) // "": it is not written
			if is := strings.TrimSpace(string(got)); is != want && (want != "" || is != "0") {
				t.Errorf("%+v: %s is %q, want %q", tc, file, is, want)
			}
		}
	}
}

// TestReservedHugePages: daemons cannot have reserved any, so they get none, as with the kubelet.
func TestReservedHugePages(t *testing.T) {
	rewritable(t)
	reserved := list("cpu=500m memory=64Mi")
	for _, compressible := range []bool{false, true} {
		h := newHost(t).unified(allControllers, "/daemons")
		tree := h.tree(Config{})
		r := ReservedResources(reserved, compressible)
		if err := tree.EnforceReserved(t.Context(), "/daemons", r); err != nil {
			t.Fatal(err)
		}
		expect(t, h.mount+"/daemons", "cpu.weight", "20", "hugetlb.2MB.max", "0")
	}
}
