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

	v1 "k8s.io/api/core/v1"
)

const (
	// damagedNodes nodes are damaged side by side, in rounds of a restart of the agent with several
	// records damaged each.
	damagedNodes, damageRounds, damagesPerRound = 3, 10, 4
	// foundInside is a file in a folder that stands in a record's place.
	foundInside = "kept-by-an-operator"
)

// unwrittenRecords are those that the agent writes only when something happens that does not here.
var unwrittenRecords = []string{"numalet_evictions", "numalet_shutdown_pods",
	"numalet_device_failures", "graceful_node_shutdown_state", "dra_health_state"}

// recordDamage is one change of a file; content is nil for a folder.
type recordDamage struct {
	path, kind string
	content    []byte
	gone       bool
}

func (d recordDamage) String() string { return d.path + " " + d.kind }

// apply damages the file.
func (d recordDamage) apply(root string) error {
	path := filepath.Join(root, d.path)
	if err := os.RemoveAll(path); err != nil || d.gone {
		return err
	}
	if d.content == nil {
		return errors.Join(os.Mkdir(path, 0o700),
			os.WriteFile(filepath.Join(path, foundInside), nil, 0o600))
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
		{kind: "missing", gone: true}, {kind: "empty", content: []byte{}},
		{kind: fmt.Sprintf("cut at %d of %d", at, len(now)), content: append([]byte{}, now[:at]...)},
		{kind: fmt.Sprintf("flipped at %d of %d", at, len(now)), content: flipped},
		{kind: "zeros", content: make([]byte, len(now))},
		{kind: "no JSON", content: []byte("nonsense\n")},
		{kind: "of the run before", content: append([]byte{}, before...)},
		{kind: "of another boot", content: other(strings.TrimSpace(string(boot)), "another-boot")},
		{kind: "of another version", content: other(`"version":`, `"version":9`)},
		{kind: "read-only", content: append([]byte{}, now...)},
		{kind: "a folder"},
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
	for _, name := range unwrittenRecords {
		if out[name] == nil {
			out[name] = []byte{}
		}
	}
	return out
}

// TestDamagedRecords damages records of the agent and of the kubelet, drawn at random, while the agent
// is down and pods run that hold CPUs, memory, huge pages, devices, user ids and deadlines. Each pod
// keeps what it has, no container is touched and no plugin asked, what stood in a record's place is
// kept, and in the end pods can end and others come. NUMALET_SEED draws other damages.
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
		d.Pod(name, manifest(name, spec+"\n  containers: [{name: main, image: sim.local/app}]"))
		d.AwaitPhase(name+"-node", v1.PodRunning)
	}
	says(t, d.Node, "is cordoned", "cordon", gpu, "gpu-15")
	d.restarts = restartCounts(t, d.Node)
	d.before = recordsBelow(t, d.Root)
	return d
}

func (d *damaged) run() {
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
	for _, name := range names[:min(damagesPerRound, len(names))] {
		d.drawn[kindOf(name)]++
		all = append(all, drawDamage(d.rand, name, now[name], d.before[name]))
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

// untouched checks that a folder which stood in a record's place is somewhere, with what is in it.
func (d *damaged) untouched(all []recordDamage) {
	for _, one := range all {
		if one.content != nil || one.gone {
			continue
		}
		path := filepath.Join(d.Root, one.path)
		aside, _ := filepath.Glob(path + ".corrupt-*/" + foundInside)
		if _, err := os.Stat(filepath.Join(path, foundInside)); err != nil && len(aside) == 0 {
			d.t.Errorf("%v: the folder is gone", one)
		}
		for _, name := range append(aside, path) {
			_ = os.RemoveAll(strings.TrimSuffix(name, "/"+foundInside))
		}
	}
}

// ends has all pods end: nothing is left of what they held.
func (d *damaged) ends() {
	names := append(slices.Collect(maps.Keys(tenPods)), "users", "late")
	for _, name := range names {
		d.RemovePod(name)
	}
	for _, name := range names {
		d.AwaitGone(name + "-node")
	}
	d.Eventually("nothing is left of them", func() error {
		if state := assigned(d.t, d.Node); len(state.Pods) > 0 {
			return fmt.Errorf("%d pods are recorded", len(state.Pods))
		}
		return nil
	})
}
