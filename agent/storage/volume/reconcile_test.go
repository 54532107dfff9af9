package volume

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/mount-utils"
)

func TestReconcile(t *testing.T) {
	at := func(name string) place { return place{emptyDirName, name} }
	for name, test := range map[string]struct {
		want []wanted
		have []found
		out  []string
	}{
		"nothing": {},
		"a new pod": {want: []wanted{{place: at("b")}, {place: at("a")}},
			out: []string{"make kubernetes.io~empty-dir/b: it is not there",
				"make kubernetes.io~empty-dir/a: it is not there"}},
		"all is there": {[]wanted{{place: at("a"), mounted: true}, {place: at("b")}},
			[]found{{at("a"), true, true}, {at("b"), true, false}}, nil},
		"cut off": {[]wanted{{place: at("a")}}, []found{{at("a"), false, false}},
			[]string{"make kubernetes.io~empty-dir/a: it is not complete"}},
		"after a reboot": {[]wanted{{place: at("a"), mounted: true}},
			[]found{{at("a"), true, false}},
			[]string{"make kubernetes.io~empty-dir/a: nothing is mounted there"}},
		"what the agent writes": {[]wanted{{place: at("a"), written: true, mounted: true}},
			[]found{{at("a"), true, true}},
			[]string{"update kubernetes.io~empty-dir/a: its content may have changed"}},
		"elsewhere": {want: []wanted{{place: at("a"), outside: true}},
			out: []string{"make kubernetes.io~empty-dir/a: it is looked at each time"}},
		"strays go first": {[]wanted{{place: at("a")}},
			[]found{{at("z"), true, true}, {at("y"), false, false}},
			[]string{"remove kubernetes.io~empty-dir/y: the pod does not use it",
				"remove kubernetes.io~empty-dir/z: the pod does not use it",
				"make kubernetes.io~empty-dir/a: it is not there"}},
		"of another type": {[]wanted{{place: place{"kubernetes.io/nfs", "a"}}},
			[]found{{at("a"), true, false}},
			[]string{"remove kubernetes.io~empty-dir/a: the pod does not use it",
				"make kubernetes.io~nfs/a: it is not there"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, s := range reconcile(test.want, test.have) {
				got = append(got, s.String())
			}
			if diff := cmp.Diff(test.out, got); diff != "" {
				t.Error("-want +got:\n", diff)
			}
		})
	}
}

// world is a naive file system: what steps lead to.
type world map[place]found

func (w world) list() (out []found) {
	for _, f := range w {
		out = append(out, f)
	}
	return out
}

// take carries out a step up to a crash: 0 nothing, 1 the directory, 2 the mount, 3 all.
func (w world) take(s step, want []wanted, far int) {
	if s.verb == remove {
		switch far {
		case 0:
		case 3:
			delete(w, s.place)
		default:
			w[s.place] = found{place: s.place, complete: w[s.place].complete}
		}
		return
	}
	i := slices.IndexFunc(want, func(x wanted) bool { return x.place == s.place })
	if want[i].outside || far == 0 {
		return
	}
	was := w[s.place]
	w[s.place] = found{place: s.place, complete: was.complete || far == 3,
		mounted: was.mounted || want[i].mounted && far >= 2}
}

// Pods change, the machine is rebooted, the agent crashes in the middle of a step: after all steps,
// the directory has what is wanted, and the only steps left are those done each time.
func TestReconcileWalk(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		there := world{}
		for range 30 {
			var want []wanted
			for _, n := range r.Perm(5)[:r.IntN(6)] {
				w := []wanted{
					{place: place{plugin: "kubernetes.io/empty-dir"}, mounted: r.IntN(2) == 0},
					{place: place{plugin: "kubernetes.io/nfs"}, mounted: true},
					{place: place{plugin: "kubernetes.io/secret"}, mounted: true, written: true},
					{place: place{plugin: "kubernetes.io/host-path"}, outside: true},
				}[r.IntN(4)]
				w.name = fmt.Sprint(n)
				want = append(want, w)
			}
			if r.IntN(4) == 0 { // a reboot
				for p, f := range there {
					f.mounted = false
					there[p] = f
				}
			}
			steps := reconcile(want, there.list())
			if crash := r.IntN(3) == 0 && len(steps) > 0; crash {
				at := r.IntN(len(steps))
				for _, s := range steps[:at] {
					there.take(s, want, 3)
				}
				there.take(steps[at], want, r.IntN(3))
				continue
			}
			for _, s := range steps {
				there.take(s, want, 3)
			}
			converged(t, seed, want, there)
		}
	}
}

func converged(t *testing.T, seed uint64, want []wanted, there world) {
	t.Helper()
	inside := map[place]wanted{}
	for _, w := range want {
		if !w.outside {
			inside[w.place] = w
		}
	}
	for p, f := range there {
		if w, is := inside[p]; !is || !f.complete || w.mounted && !f.mounted {
			t.Fatalf("seed %d: %v is there as %+v, wanted as %+v", seed, p, f, w)
		}
		delete(inside, p)
	}
	if len(inside) > 0 {
		t.Fatalf("seed %d: %v are not there", seed, inside)
	}
	for _, s := range reconcile(want, there.list()) {
		i := slices.IndexFunc(want, func(x wanted) bool { return x.place == s.place })
		if i < 0 || s.verb == makeIt && !want[i].outside {
			t.Fatalf("seed %d: there is still to %v", seed, s)
		}
	}
}

// failing lets one mount call fail, as if the agent were killed there.
type failing struct {
	*mount.FakeMounter
	left *atomic.Int32
}

func (f failing) Mount(source, target, fstype string, options []string) error {
	if f.left.Add(-1) < 0 {
		return errors.New("killed")
	}
	return f.FakeMounter.Mount(source, target, fstype, options)
}

// A new run of the agent finds what the last one made, makes what is missing, and removes what the
// pod does not use; it leaves other pods' volumes alone.
func TestFoundAgain(t *testing.T) {
	mounter := mount.NewFakeMounter(nil)
	var left atomic.Int32
	left.Store(1)
	v, _ := newVolumes(t, Config{Mounter: failing{mounter, &left}})
	pod := podWith(empty("a", "Memory"), empty("b", "Memory"), empty("c", ""))
	if err := v.SetUp(t.Context(), pod); err == nil {
		t.Fatal("the second mount went well")
	}
	dir, _ := v.node.podDir(pod.UID)
	write(t, emptyDirPath(dir, "a")+"/file", "x")
	stray := emptyDirPath(dir, "stray")
	write(t, stray+"/deep/file", "x")
	if err := mounter.Mount("tmpfs", stray, "tmpfs", nil); err != nil {
		t.Fatal(err)
	}
	again, err := New(alone(Config{Root: v.node.root, Mounter: mounter}))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Update(t.Context(), pod); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(stray); err != nil {
		t.Error("an update of what the agent writes removed something: ", err)
	}
	setUp(t, again, pod)
	if _, err := os.Stat(stray); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the stray is still there: %v", err)
	}
	if got := read(t, emptyDirPath(dir, "a")+"/file"); got != "x" {
		t.Errorf("a has %q", got)
	}
	var mounted []string
	for _, m := range mounter.MountPoints {
		mounted = append(mounted, filepath.Base(m.Path))
	}
	slices.Sort(mounted) // volumes are set up side by side
	if !slices.Equal(mounted, []string{"a", "b"}) {
		t.Errorf("mounted %q", mounted)
	}
	used, _ := usedVolumes(pod)
	if have, err := again.node.find(dir); err != nil || len(reconcile((Config{}).want(used, false), have)) != 0 {
		t.Errorf("there is still something to do about %v (%v)", have, err)
	}
}
