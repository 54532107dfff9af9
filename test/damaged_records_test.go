package test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

const (
	// damagedNodes nodes are damaged side by side, in rounds of a restart of the agent with several
	// records damaged each.
	damagedNodes, damageRounds, damagesPerRound = 3, 10, 4
	// foundInside is a file in a folder that stands in a record's place.
	foundInside = "kept-by-an-operator"
)

// unwrittenRecords are those that the agent writes only when something happens that does not here.
var unwrittenRecords = []string{"numalet_endings", "numalet_device_failures", "graceful_node_shutdown_state",
	"dra_health_state"}

// foldersOfRecords may have a file in their place.
var foldersOfRecords = []string{"numalet_statuses", "image_manager/pulled", "image_manager/pulling",
	"pod-resources", "checkpoints"}

// recordDamage is one change of a file, or a file in a folder's place.
type recordDamage struct {
	path, kind string
	content    []byte
	put        func(path string) error // nil: a file with that content
}

func (d recordDamage) String() string { return d.path + " " + d.kind }

// apply damages the file.
func (d recordDamage) apply(root string) error {
	path := filepath.Join(root, d.path)
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	if d.put != nil {
		return d.put(path)
	}
	mode := os.FileMode(0o600)
	if d.kind == "read-only" {
		mode = 0o400
	}
	return os.WriteFile(path, d.content, mode)
}

// drawDamage draws how a file is damaged that has that content now, and had another one before.
func drawDamage(r *rand.Rand, path string, now, before []byte) recordDamage {
	at := r.IntN(len(now) + 1)
	flipped := bytes.Clone(now)
	if len(flipped) > 0 {
		flipped[at%len(flipped)] ^= 1
	}
	other := func(from, to string) []byte { return bytes.ReplaceAll(now, []byte(from), []byte(to)) }
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	all := []recordDamage{
		{kind: "missing", put: func(string) error { return nil }}, {kind: "empty", content: []byte{}},
		{kind: fmt.Sprintf("cut at %d of %d", at, len(now)), content: append([]byte{}, now[:at]...)},
		{kind: fmt.Sprintf("flipped at %d of %d", at, len(now)), content: flipped},
		{kind: "zeros", content: make([]byte, len(now))},
		{kind: "no JSON", content: []byte("nonsense\n")},
		{kind: "of the run before", content: append([]byte{}, before...)},
		{kind: "of another boot", content: other(strings.TrimSpace(string(boot)), "another-boot")},
		{kind: "of another version", content: other(`"version":`, `"version":9`)},
		{kind: "read-only", content: append([]byte{}, now...)},
		{kind: "a folder", put: func(path string) error {
			return errors.Join(os.Mkdir(path, 0o700),
				os.WriteFile(filepath.Join(path, foundInside), nil, 0o600))
		}},
		{kind: "a pipe", put: func(path string) error { return unix.Mkfifo(path, 0o600) }},
		{kind: "a link", put: func(path string) error { return os.Symlink("/dev/zero", path) }},
	}
	d := all[r.IntN(len(all))]
	d.path = path
	return d
}

// recordsBelow returns the durable files below a root: no socket, no volume, nothing that was moved
// aside.
func recordsBelow(t *testing.T, root string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		skipped := slices.ContainsFunc([]string{"/volumes", "/etc-hosts", "/containers", "/plugins",
			".corrupt-", ".tmp", "/seccomp"},
			func(part string) bool { return strings.Contains("/"+name, part) })
		switch {
		case err != nil:
			return err
		case skipped && e.IsDir():
			return filepath.SkipDir
		case skipped || !e.Type().IsRegular():
			return nil
		}
		out[name] = readFile(t, path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(unwrittenRecords, foldersOfRecords) {
		if out[name] == nil {
			out[name] = []byte{}
		}
	}
	return out
}

// TestDamagedRecords damages records of the agent and of the kubelet, drawn at random, while the agent
// is down and pods run that hold CPUs, memory, huge pages, devices, user ids and deadlines. Each pod
// keeps what it has, no container is touched and no plugin asked, what stood in a record's place is
// kept, a container that exits starts again with the same, and in the end all is released. NUMALET_SEED draws other damages.
func TestDamagedRecords(t *testing.T) {
	seed := uint64(1)
	if text := os.Getenv("NUMALET_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("seed %d: %d damages", seed, damagedNodes*damageRounds*damagesPerRound)
	for i := range uint64(damagedNodes) {
		t.Run(fmt.Sprintf("node %d", i), func(t *testing.T) {
			t.Parallel()
			newDamaged(t, rand.New(rand.NewPCG(seed, i))).run()
		})
	}
}

// damaged is a node whose records are damaged.
type damaged struct {
	*migrant
	rand   *rand.Rand
	before map[string][]byte // the records at the restart before the last
	drawn  map[string]int    // how often each record was drawn
}

func newDamaged(t *testing.T, r *rand.Rand) *damaged {
	t.Helper()
	d := &damaged{migrant: newMigrant(t, policies{"static", "Static", "best-effort"}), rand: r,
		drawn: map[string]int{}}
	for name, spec := range map[string]string{"users": "hostUsers: false",
		"late": "activeDeadlineSeconds: 86400"} {
		d.Pod(name, manifestOf(name, spec+"\n  containers: [{name: main, image: sim.local/app}]"))
		d.AwaitPhase(name+"-node", v1.PodRunning)
	}
	says(t, d.Node, "is cordoned", "cordon", gpu, "gpu-15")
	d.restarts = restartCounts(t, d.Node)
	d.before = recordsBelow(t, d.Root)
	return d
}

func (d *damaged) run() {
	pods := d.names()
	d.rand.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	for round := range damageRounds {
		var all []recordDamage
		d.restart(func() {
			now := recordsBelow(d.t, d.Root)
			all = d.draw(now)
			d.before = now
			for _, one := range all {
				if err := one.apply(d.Root); err != nil {
					d.t.Fatal(err)
				}
			}
		})
		d.t.Logf("round %d: %v", round, all)
		d.check(fmt.Sprintf("%v", all))
		d.untouched(all)
		d.startsAgain(pods[round]) // a pod's first, which waits for no back-off
	}
	d.admits("after all that")
	d.ends()
	d.t.Logf("drawn: %v", d.drawn)
}

// draw draws damages of different records, those first that were drawn least.
func (d *damaged) draw(now map[string][]byte) (all []recordDamage) {
	names := slices.Sorted(maps.Keys(now))
	d.rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	slices.SortStableFunc(names, func(a, b string) int { return d.drawn[kindOf(a)] - d.drawn[kindOf(b)] })
	for _, name := range names {
		overlaps := func(o recordDamage) bool {
			return strings.HasPrefix(name+"/", o.path+"/") || strings.HasPrefix(o.path+"/", name+"/")
		}
		if len(all) == damagesPerRound || slices.ContainsFunc(all, overlaps) {
			continue
		}
		d.drawn[kindOf(name)]++
		one := recordDamage{path: name, kind: "a file in the folder's place", content: []byte("x")}
		if !slices.Contains(foldersOfRecords, name) {
			one = drawDamage(d.rand, name, now[name], d.before[name])
		}
		all = append(all, one)
	}
	return all
}

// kindOf returns the path of a record without what names a pod or an image.
func kindOf(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if len(part) > 30 {
			parts[i] = "*"
		}
	}
	return strings.Join(parts, "/")
}

// untouched checks that what stood in a record's place is there, or was moved aside: a folder with what
// is in it, a pipe, a link, a file.
func (d *damaged) untouched(all []recordDamage) {
	for _, one := range all {
		path := filepath.Join(d.Root, one.path)
		aside, _ := filepath.Glob(path + ".corrupt-*")
		is := func(name string) bool {
			info, err := os.Lstat(name)
			if err != nil {
				return false
			}
			switch one.kind {
			case "a folder":
				_, err = os.Stat(filepath.Join(name, foundInside))
				return err == nil
			case "a pipe":
				return info.Mode()&fs.ModeNamedPipe != 0
			case "a link":
				return info.Mode()&fs.ModeSymlink != 0
			case "a file in the folder's place":
				return info.Mode().IsRegular()
			}
			return true
		}
		if (one.put != nil && one.kind != "missing" || slices.Contains(foldersOfRecords, one.path)) &&
			!slices.ContainsFunc(append(aside, path), is) {
			d.t.Errorf("%v: it is gone", one)
		}
		for _, name := range aside {
			_ = os.RemoveAll(name)
		}
	}
}

// names returns the pods, sorted.
func (d *damaged) names() []string {
	return append(slices.Sorted(maps.Keys(tenPods)), "users", "late")
}

// startsAgain has a container exit. The next one gets the same of the kernel, the plugins and the user
// namespace.
func (d *damaged) startsAgain(name string) {
	d.t.Helper()
	pod := name + "-node"
	given := func(c crisim.Container) string {
		return fmt.Sprint(c.Mems, c.Config.GetDevices(), c.Config.GetCDIDevices(), c.Config.GetEnvs(),
			c.Config.GetLinux().GetSecurityContext().GetNamespaceOptions())
	}
	before := container(d.t, d.Node, pod, "main")
	if err := d.Runtime.Exit(pod+"/main", crisim.Exit{Code: 1}); err != nil {
		d.t.Fatal(err)
	}
	awaitContainer(d.Node, pod, "main", func(c crisim.Container) error {
		if c.Subject.ID == before.Subject.ID || !c.Running() {
			return errors.New("it does not run again")
		}
		return nil
	})
	if diff := cmp.Diff(given(before), given(container(d.t, d.Node, pod, "main"))); diff != "" {
		d.t.Errorf("%s starts again with another assignment (-before +after):\n%s", pod, diff)
	}
	d.restarts[pod+"/main"]++
	d.check(name + " starts again")
}

// ends has all pods end: nothing is left of what they held, and another pod can have it.
func (d *damaged) ends() {
	names := d.names()
	for _, name := range names {
		d.RemovePod(name)
	}
	for _, name := range names {
		d.AwaitGone(name + "-node")
	}
	d.Eventually("nothing is left of them", func() error {
		if state := assignedState(d.t, d.Node); len(state.Pods) > 0 {
			return fmt.Errorf("%d pods are recorded", len(state.Pods))
		}
		entries, _, err := d.deviceFile()
		if err != nil || len(entries) > 0 {
			return errors.Join(err, fmt.Errorf("the kubelet's checkpoint has %+v", entries))
		}
		left, err := filepath.Glob(filepath.Join(d.Root, "pods/*"))
		if err != nil || len(left) > 0 {
			return errors.Join(err, fmt.Errorf("%q is left", left))
		}
		return nil
	})
	d.Pod("all", limited("all", "cpu: 60, memory: 70Gi, "+gpu+": 15, "+nic+": 2"))
	d.AwaitPhase("all-node", v1.PodRunning)
}
