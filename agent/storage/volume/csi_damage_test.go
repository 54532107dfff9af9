package volume

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/csi/csitest"
	"github.com/numalet/numalet/internal/podtest"
)

// having is a way in which pods have a volume, with the records of that below the root directory.
type having struct {
	can     []csipb.NodeServiceCapability_RPC_Type
	block   bool
	inline  bool
	records []string
}

const pvcsOf = "pods/%s/numalet_claims"

func havings() map[string]having {
	published := func(volume string) []string {
		return []string{"pods/u/volumes/kubernetes.io~csi/" + volume + "/vol_data.json",
			"pods/w/volumes/kubernetes.io~csi/" + volume + "/vol_data.json"}
	}
	pvcs := []string{fmt.Sprintf(pvcsOf, "u"), fmt.Sprintf(pvcsOf, "w")}
	return map[string]having{
		"staged": {can: []csipb.NodeServiceCapability_RPC_Type{stages},
			records: slices.Concat(published("pv"), pvcs, []string{diskDir + "/vol_data.json"})},
		"not staged": {records: slices.Concat(published("pv"), pvcs)},
		"inline": {inline: true, can: []csipb.NodeServiceCapability_RPC_Type{stages},
			records: published("scratch")},
		"block": {block: true, can: []csipb.NodeServiceCapability_RPC_Type{stages},
			records: append(pvcs, blockDir+"/pv/data/vol_data.json")},
	}
}

// damages change a record as a crash, a disk, a user or another version may.
func damages() map[string]func(path string, draw *rand.Rand) error {
	put := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }
	return map[string]func(string, *rand.Rand) error{
		"missing": func(path string, _ *rand.Rand) error { return os.Remove(path) },
		"empty":   func(path string, _ *rand.Rand) error { return put(path, "") },
		"cut": func(path string, draw *rand.Rand) error {
			info, err := os.Stat(path)
			if err != nil {
				return err
			}
			return os.Truncate(path, draw.Int64N(info.Size()-1))
		},
		"zeros": func(path string, _ *rand.Rand) error { return put(path, strings.Repeat("\x00", 100)) },
		"another volume's": func(path string, _ *rand.Rand) error {
			return put(path, `{"driverName":"disk.example.com","volumeHandle":"vol-9","specVolID":"pv-9"}`)
		},
		"half another volume's": func(path string, _ *rand.Rand) error {
			return put(path, `{"attachmentID":"`+attachmentID+`","driverName":"disk.example.com","nodeName":"node",`+
				`"specVolID":"pv-9","volumeHandle":"vol-9"}`)
		},
		"a directory": func(path string, _ *rand.Rand) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
		"read-only": func(path string, _ *rand.Rand) error { return os.Chmod(path, 0o400) },
		"of a later version": func(path string, _ *rand.Rand) error {
			text, err := os.ReadFile(path)
			if err != nil || filepath.Base(path) != "vol_data.json" {
				return err
			}
			return put(path, strings.Replace(string(text), "{", `{"aNewField":"x",`, 1))
		},
	}
}

// story is what happens to pods after the agent was restarted with damaged records.
type story struct {
	away    bool // the API server does not answer at first
	reboot  bool // nothing is mounted any more
	restart bool // containers start again
	third   bool // another pod comes
	orphans bool // the agent sees no more of the pods than their directories
	blind   bool // the kernel's list of mounts cannot be read
}

func drawStory(draw *rand.Rand, h having) story {
	is := func(in int) bool { return draw.IntN(in) == 0 }
	s := story{away: is(3), reboot: is(6), restart: is(3), third: is(3), blind: is(2),
		orphans: is(3) && !h.inline}
	if s.reboot || s.orphans {
		s.away, s.orphans = false, s.orphans && !s.reboot
	}
	if s.orphans {
		s.restart = false
	}
	return s
}

// telling is a node with pods, and what has happened there.
type telling struct {
	*diskNode
	story   story
	pods    []*v1.Pod
	third   *v1.Pod
	inUse   []string // in the node's status
	history []string
}

func newTelling(t *testing.T, h having, s story) *telling {
	t.Helper()
	var n *diskNode
	made := diskPod
	if h.block {
		n, made = newBlockDisk(t, h.can...)
	} else {
		n = newDisk(t, h.can...)
	}
	if h.inline {
		made = func(uid string) *v1.Pod {
			disk := ephemeralDisk()
			disk.CSI.NodePublishSecretRef = nil
			return podtest.New("shop/web-"+uid, podtest.UID(diskPod(uid).UID),
				podtest.Containers("c"), podtest.Mounts(disk))
		}
		n.objects.has(&storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{PodInfoOnMount: ptr.To(true),
			VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}})
	}
	return &telling{diskNode: n, story: s, pods: []*v1.Pod{made("u"), made("w")}, third: made("x")}
}

// say notes what has happened, with the calls of the driver since the last time.
func (n *telling) say(what string) {
	n.t.Helper()
	n.history = append(n.history, "# "+what)
	for _, call := range n.driver.Calls() {
		text := strings.Join(strings.Fields(fmt.Sprint(call.Request)), " ")
		n.history = append(n.history, call.RPC+" "+strings.ReplaceAll(text, n.node.root, ""))
	}
	n.driver.Forget()
}

// look notes the state of the node: volumes in use as its status says, and mounts.
func (n *telling) look() {
	n.t.Helper()
	now := n.mounts.InUse()
	for _, name := range n.inUse {
		if !slices.Contains(now, name) && n.mounts.MayHave(name) {
			now = append(now, name)
		}
	}
	n.inUse = now
	n.history = append(n.history, fmt.Sprintf("in use %q", now))
	var mounted []string
	for _, m := range n.mounter.MountPoints {
		mounted = append(mounted, "mounted "+strings.TrimPrefix(m.Path, n.node.root))
	}
	slices.Sort(mounted)
	n.history = append(n.history, mounted...)
}

// files notes all files, and what records say.
func (n *telling) files() {
	n.t.Helper()
	err := filepath.WalkDir(n.node.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		line := "file " + strings.TrimPrefix(path, n.node.root)
		if d.Name() == "vol_data.json" {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += " " + strings.Replace(string(text), `"aNewField":"x",`, "", 1)
		}
		n.history = append(n.history, line)
		return nil
	})
	if err != nil {
		n.t.Error(err)
	}
}

// update does what a pod's worker does when that is due.
func (n *telling) update() {
	n.t.Helper()
	for _, pod := range n.pods {
		if n.Due(pod, time.Now()).IsZero() {
			continue
		}
		if err := n.Update(n.t.Context(), pod); err != nil {
			n.t.Error(err)
		}
	}
}

// tell plays the story. damage is called while no agent runs.
func (n *telling) tell(damage func(root string)) []string {
	n.t.Helper()
	for _, pod := range n.pods {
		setUp(n.t, n.Volumes, pod)
	}
	n.say("pods run")
	n.look()
	damage(n.node.root)
	n.blind = n.story.blind
	n.pvcs.away = n.story.away
	if n.story.reboot {
		n.driver.Lose()
		for _, m := range slices.Clone(n.mounter.MountPoints) {
			if err := n.mounter.Unmount(m.Path); err != nil {
				n.t.Fatal(err)
			}
		}
	}
	n.start()
	n.look()
	if n.story.away {
		n.update()
		n.look()
		n.pvcs.away = false
		for _, pod := range n.pods {
			n.Changed(pod.UID) // the time has come
		}
	}
	if !n.story.orphans {
		n.goOn()
	}
	n.end()
	return n.history
}

// goOn has the pods go on after the start of the agent.
func (n *telling) goOn() {
	n.t.Helper()
	if n.story.reboot || n.story.restart {
		for _, pod := range n.pods {
			setUp(n.t, n.Volumes, pod)
		}
	}
	n.update()
	n.say("pods go on")
	n.look()
	n.files()
	if n.story.third {
		setUp(n.t, n.Volumes, n.third)
		n.say("another pod")
		n.look()
		tearDown(n.t, n.diskNode, n.third.UID)
		n.say("it has gone")
		n.look()
	}
}

// end ends the pods.
func (n *telling) end() {
	n.t.Helper()
	for i, pod := range n.pods {
		if !n.story.orphans {
			n.Recall(pod)
		}
		tearDown(n.t, n.diskNode, pod.UID)
		n.history = append(n.history, "# "+string(pod.UID)+" has gone")
		if i < len(n.pods)-1 {
			n.say("so far")
			n.look()
		}
	}
	n.unstaged()
	n.say("at the end")
	n.look()
	n.files()
	for _, wrong := range n.driver.Wrong() {
		n.history = append(n.history, "the driver was called wrongly: "+wrong)
	}
	for _, message := range n.lost {
		n.history = append(n.history, "lost: "+message)
	}
}

// Whatever becomes of one volume's records while the agent is away, or of two or three of them, the node
// is what it would be otherwise, at all times: the same calls of the driver in the same order, the same
// mounts, files and volumes in use.
func TestDamagedRecordsOfVolumes(t *testing.T) {
	all := havings()
	for _, name := range []string{"staged", "not staged", "inline", "block"} {
		t.Run(name, func(t *testing.T) {
			draw := rand.New(rand.NewPCG(7, uint64(len(name))))
			kinds := damages()
			names := []string{}
			for kind := range kinds {
				names = append(names, kind)
			}
			slices.Sort(names)
			whole := map[story][]string{}
			h := all[name]
			for i := range 32 {
				s := drawStory(draw, h)
				if whole[s] == nil {
					whole[s] = newTelling(t, h, s).tell(func(string) {})
				}
				records := slices.Clone(h.records)
				draw.Shuffle(len(records), func(a, b int) { records[a], records[b] = records[b], records[a] })
				var did []string
				got := newTelling(t, h, s).tell(func(root string) {
					for _, record := range records[:1+draw.IntN(min(3, len(records)))] {
						kind := names[draw.IntN(len(names))]
						if i < len(names) {
							kind = names[i]
						}
						did = append(did, record+" is "+kind)
						if err := kinds[kind](filepath.Join(root, record), draw); err != nil {
							t.Fatal(err)
						}
					}
				})
				if diff := cmp.Diff(whole[s], got); diff != "" {
					t.Errorf("draw %d, %+v, %q: (-undamaged +damaged)\n%s", i, s, did, diff)
				}
			}
		})
	}
}

// Each length to which a record may be cut is one to recover from.
func TestRecordsCutAtEachLength(t *testing.T) {
	n := newDisk(t, stages)
	setUp(t, n.Volumes, diskPod("u"))
	for _, dir := range []string{diskDir, publishDir} {
		path := filepath.Join(n.node.root, dir, "vol_data.json")
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for length := range whole {
			write(t, path, string(whole[:length]))
			n.start()
			if got, err := os.ReadFile(path); err != nil || string(got) != string(whole) &&
				length < len(whole)-1 { // without the last newline it is whole
				t.Fatalf("%s cut to %d bytes: %q, %v", dir, length, got, err)
			}
			if used := n.mounts.InUse(); len(used) != 1 {
				t.Errorf("%s cut to %d bytes: in use %q", dir, length, used)
			}
		}
	}
	tearDown(t, n, "u")
	n.unstaged()
	n.did("all calls", csitest.Stage, csitest.Publish, csitest.Unpublish, csitest.Unstage)
}
