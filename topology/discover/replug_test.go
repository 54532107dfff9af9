package discover

import (
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/numalet/numalet/topology"
)

// TestAgain takes CPUs offline and brings others back: each stays in its core, cache, socket and
// node, although the kernel forgets all but the node.
func TestAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := anyMachine(t)
		for i := range first.CPUs {
			first.CPUs[i].Offline = first.CPUs[i].Node == topology.NoNode
		}
		known, err := tree{attributes{rendered(first)}}.spec()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			next := replugged(t, known)
			got, err := tree{attributes{rendered(next)}}.again(known)
			if err != nil {
				t.Fatal(err)
			}
			if diff := diffSpecs(next, got); diff != "" {
				t.Fatalf("read again (-want +got):\n%s", diff)
			}
			known = got
		}
	})
}

// replugged takes a few other CPUs offline.
func replugged(t *rapid.T, spec topology.Spec) topology.Spec {
	spec.CPUs = slices.Clone(spec.CPUs)
	offline := rapid.SliceOfN(rapid.IntRange(1, max(1, len(spec.CPUs)-1)), 0, 12).Draw(t, "offline")
	for i := range spec.CPUs {
		spec.CPUs[i].Offline = spec.CPUs[i].Node == topology.NoNode || slices.Contains(offline, i)
	}
	return spec
}

// The place of a CPU that is offline at the first look is unknown. Once it is online, the kernel's
// answer counts.
func TestACPUThatWasOfflineAtFirst(t *testing.T) {
	whole := fixtureSpec(t, "laptop")
	less := whole
	less.CPUs = slices.Clone(whole.CPUs)
	less.CPUs[0].Offline = true
	first, err := tree{attributes{rendered(less)}}.spec()
	if err != nil {
		t.Fatal(err)
	}
	got, err := tree{attributes{rendered(whole)}}.again(first)
	if err != nil {
		t.Fatal(err)
	}
	want := got
	want.CPUs = whole.CPUs
	if diff := diffSpecs(want, got); diff != "" {
		t.Errorf("once it is online (-want +got):\n%s", diff)
	}
}

func TestOnlineCPUs(t *testing.T) {
	root := writeTree(t, rendered(fixtureSpec(t, "laptop")))
	before, err := OnlineCPUs(root)
	if err != nil || before == "" {
		t.Fatalf("OnlineCPUs() = %q, %v", before, err)
	}
	if err := os.WriteFile(root+"/"+cpuDir+"/online", []byte("0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if after, err := OnlineCPUs(root); after != "0" || err != nil {
		t.Errorf("OnlineCPUs() = %q, %v, want 0", after, err)
	}
	if got, err := OnlineCPUs(root + "/proc"); err == nil {
		t.Errorf("without sysfs %q are online", got)
	}
}

func TestIsolatedCPUs(t *testing.T) {
	files := rendered(fixtureSpec(t, "laptop"))
	if got, err := IsolatedCPUs(writeTree(t, files)); got != (Isolated{}) || err != nil {
		t.Errorf("a kernel that does not tell: %+v, %v", got, err)
	}
	files[cpuDir+"/isolated"] = &fstest.MapFile{Data: []byte("2-3\n")}
	files[cpuDir+"/nohz_full"] = &fstest.MapFile{Data: []byte("  (null)\n")}
	if got, err := IsolatedCPUs(writeTree(t, files)); got != (Isolated{Scheduler: "2-3"}) ||
		err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	m, err := Host(writeTree(t, files))
	if err != nil || m.Isolated().String() != "2-3" {
		t.Errorf("the machine isolates %s, %v", m.Isolated(), err)
	}
	files[cpuDir+"/isolated"] = &fstest.MapFile{Data: []byte(" (null)\n")}
	if m, err := Host(writeTree(t, files)); err != nil || !m.Isolated().IsEmpty() {
		t.Errorf("(null) isolates %s, %v", m.Isolated(), err)
	}
	files[cpuDir+"/isolated"] = &fstest.MapFile{Data: []byte("2-x\n")}
	if m, err := Host(writeTree(t, files)); err == nil {
		t.Errorf("2-x isolates %s", m.Isolated())
	}
}
