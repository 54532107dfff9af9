package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// csiPods are the pods of a round, by name, with the claims that each has.
var csiPods = map[string][]string{
	"two": {"files", "more"}, "device": {"block"}, "left": {"shared"}, "right": {"shared"}, "below": {"deep"},
	"reader": {"read"}, "inline": nil,
}

// csiRounds plays rounds on a node with a driver.
type csiRounds struct {
	*csiStory
	t      *testing.T
	random *rand.Rand
	ids    map[string]string // of volumes, by claim
	// written is what was written and synced last, by claim.
	written map[string]string
	lost    []time.Time // when the node lost its mounts
	// readonly: the claim read is mounted for reading in this round.
	readonly bool
	did      []string // in this round
}

// TestCSIRounds: the agent, the driver, its attacher and the whole node are killed again and again, at any
// time, while pods with volumes of all kinds come and go. All that was written and synced is there, each
// volume is published once, none is unstaged in use, and nothing is left after a round.
// NUMALET_ROUNDS is the number of rounds, without which the test is skipped; NUMALET_ROUNDS_SEED draws others.
func TestCSIRounds(t *testing.T) {
	rounds, seed := harness.Number(t, "NUMALET_ROUNDS", 0), harness.Number(t, "NUMALET_ROUNDS_SEED", 1)
	if rounds == 0 {
		t.Skip("$NUMALET_ROUNDS is not set")
	}
	c := rig.Start(t)
	r := newCSIRounds(t, c, csiNodeOf(t, c, "numalet"), seed)
	for round := range rounds {
		began := time.Now()
		if err := r.play(int(round)); err != nil {
			t.Fatalf("seed %d, round %d: %v\nin this round: %s", seed, round, err, strings.Join(r.did, ", "))
		}
		checkCalls(t, r.d.Calls(), r.lost, r.ids["shared"])
		if t.Failed() {
			t.Fatalf("seed %d, round %d: %s", seed, round, strings.Join(r.did, ", "))
		}
		t.Logf("round %d, %v: %s", round, time.Since(began).Round(time.Millisecond), strings.Join(r.did, ", "))
	}
	t.Logf("%d rounds, %d calls to the driver", rounds, len(r.d.Calls()))
}

func newCSIRounds(t *testing.T, c rig.Cluster, n rig.Node, seed uint64) *csiRounds {
	t.Helper()
	s := &csiStory{Cluster: c, Node: n, csiCase: csiCase{name: "kill",
		object: "volumeLifecycleModes: [Persistent, Ephemeral]"}, events: map[string]bool{}}
	s.serve(t)
	s.await(t, "the driver is registered", func() error {
		_, err := s.registered(t)
		return err
	})
	r := &csiRounds{csiStory: s, t: t, random: rand.New(rand.NewPCG(seed, 0)), ids: map[string]string{},
		written: map[string]string{}}
	for _, claims := range csiPods {
		for _, claim := range claims {
			if r.ids[claim] != "" {
				continue
			}
			is := *s
			if claim == "block" {
				is.volume = "volumeMode: Block,"
			}
			r.ids[claim] = is.addClaim(t, claim)
		}
	}
	return r
}

// play has pods come and go, with a kill while they come, perhaps one while they run, and one while they
// go. Pods of some rounds go while they come.
func (r *csiRounds) play(round int) error {
	r.did, r.readonly = nil, r.random.IntN(2) == 0
	var pods []string
	for _, name := range slices.Sorted(maps.Keys(csiPods)) {
		if r.random.IntN(3) > 0 {
			pods = append(pods, name)
			r.begin(name)
		}
	}
	r.did = append(r.did, fmt.Sprintf("%v", pods))
	if r.random.IntN(4) == 0 {
		r.did = append(r.did, "pods go early")
		r.pause()
	} else if err := r.run(pods, round); err != nil {
		return err
	}
	for _, name := range pods {
		r.MustRun("delete", "pod", name, "--wait=false")
	}
	r.disturb()
	return r.awaitNothing()
}

// run has the pods use their volumes, after a kill, and perhaps again after another one.
func (r *csiRounds) run(pods []string, round int) error {
	for i := range 1 + r.random.IntN(2) {
		r.disturb()
		for _, name := range pods {
			if err := r.use(name, round+i); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin creates a pod with its volumes.
func (r *csiRounds) begin(name string) {
	var volumes, mounts, devices []string
	for _, claim := range csiPods[name] {
		readonly := claim == "read" && r.readonly
		volumes = append(volumes, fmt.Sprintf("{name: %s, persistentVolumeClaim: {claimName: %[1]s, readOnly: %t}}",
			claim, readonly))
		switch claim {
		case "block":
			devices = append(devices, "{name: block, devicePath: /dev/xvda}")
		case "deep":
			mounts = append(mounts, "{name: deep, mountPath: /deep, subPath: a/b}")
		default:
			mounts = append(mounts, fmt.Sprintf("{name: %s, mountPath: /%[1]s}", claim))
		}
	}
	if name == "inline" {
		volumes = append(volumes, fmt.Sprintf("{name: inline, csi: {driver: %s}}", r.d.Name))
		mounts = append(mounts, "{name: inline, mountPath: /inline}")
	}
	list := func(of []string) string { return "[" + strings.Join(of, ", ") + "]" }
	r.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, volumes: %s,
 containers: [{name: main, image: "registry.test/work:1", volumeMounts: %s, volumeDevices: %s}]}}`,
		name, r.Name, list(volumes), list(mounts), list(devices)))
}

// use waits until a pod runs and has what was written to its volumes, and writes anew.
func (r *csiRounds) use(name string, round int) error {
	pod := await(r.t, r.Cluster, r.Namespace, name, runs)
	for _, claim := range csiPods[name] {
		if err := r.awaitText(string(pod.UID), claim); err != nil {
			return fmt.Errorf("pod %s: %w", name, err)
		}
		path, readonly := r.path(string(pod.UID), claim), claim == "read" && r.readonly
		text := fmt.Sprintf("%s of %s in round %d\n", claim, name, round)
		err := writeSynced(path, text)
		switch {
		case readonly && !errors.Is(err, unix.EROFS):
			return fmt.Errorf("%s of pod %s is for reading, and writing says %w", claim, name, err)
		case readonly:
		case err != nil:
			return fmt.Errorf("pod %s: %w", name, err)
		default:
			r.written[claim] = text
		}
	}
	return nil
}

// awaitText waits until a volume is there with what was written to it. Before, after a loss of the node,
// there is no mount.
func (r *csiRounds) awaitText(uid, claim string) (err error) {
	for until := time.Now().Add(harness.Patience); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
		if err = r.text(r.path(uid, claim), claim); err == nil {
			return nil
		}
	}
	return err
}

func (r *csiRounds) text(path, claim string) error {
	want := r.written[claim]
	mounts, err := mount.ParseMountInfo("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	here := func(m mount.MountInfo) bool {
		return m.MountPoint == path || m.MountPoint == filepath.Dir(path)
	}
	if !slices.ContainsFunc(mounts, here) {
		return fmt.Errorf("nothing is mounted for %s", path)
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) && want == "" {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	has := make([]byte, 512)
	n, _ := file.Read(has) // an empty file is no error
	if text := string(bytes.TrimRight(has[:n], "\x00")); want != "" && text != want &&
		!strings.HasPrefix(text, want) {
		return fmt.Errorf("claim %s has %q; written and synced was %q", claim, text, want)
	}
	return nil
}

// path returns the file, or the device, of a pod's volume.
func (r *csiRounds) path(uid, claim string) string {
	volume := r.Namespace + "-" + claim
	switch claim {
	case "block":
		return filepath.Join(r.Root, "plugins/kubernetes.io/csi/volumeDevices/publish", volume, uid)
	case "deep": // the pod has a directory of it
		dirs, _ := filepath.Glob(filepath.Join(r.Root, "pods", uid, "volume-subpaths/*/main/0")) // the pattern is right
		if len(dirs) == 0 {
			return filepath.Join(r.Root, "pods", uid, "volume-subpaths")
		}
		return filepath.Join(dirs[0], "file")
	default:
		return filepath.Join(r.Root, "pods", uid, "volumes/kubernetes.io~csi", volume, "mount/file")
	}
}

// disturb kills one or two of the agent, the driver, the attacher and the node, each at some moment.
func (r *csiRounds) disturb() {
	for range 1 + r.random.IntN(2) {
		r.pause()
		switch r.random.IntN(5) {
		case 0:
			r.did = append(r.did, "driver")
			r.d.Process.Kill()
			r.pause()
			r.startDriver()
		case 1:
			r.did = append(r.did, "attacher")
			r.d.KillSidecar("csi-attacher")
		case 2:
			r.did = append(r.did, "node")
			r.reboot()
		case 3:
			r.did = append(r.did, "agent and driver")
			r.d.Process.Kill()
			r.Node.Kill()
			r.Node.Start()
			r.pause()
			r.startDriver()
		default:
			r.did = append(r.did, "agent")
			r.Node.Kill()
			r.pause()
			r.Node.Start()
		}
	}
}

func (r *csiRounds) pause() { time.Sleep(time.Duration(r.random.IntN(1500)) * time.Millisecond) }

func (r *csiRounds) startDriver() {
	if err := r.d.Process.Start(); err != nil {
		r.t.Fatal(err)
	}
}

// reboot is a loss of power and a boot: processes, containers, mounts and loop devices are gone.
func (r *csiRounds) reboot() {
	r.d.Process.Kill()
	r.d.KillSidecar("csi-attacher")
	r.Node.Kill()
	for _, s := range r.Runtime.State().Sandboxes {
		_ = r.Runtime.KillSandbox(s.ID) // it may have ended
	}
	if err := csidriver.Sweep(r.Root); err != nil { // devices that the agent keeps open
		r.t.Error(err)
	}
	for _, point := range slices.Backward(mountsBelow(r.t, r.Root)) {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			r.t.Errorf("unmount %s: %v", point, err)
		}
	}
	if err := csidriver.Sweep(r.d.Dir); err != nil {
		r.t.Error(err)
	}
	r.lost = append(r.lost, time.Now())
	r.pause()
	r.Node.Start()
	r.pause()
	r.startDriver()
}

// awaitNothing waits until nothing is left of the round.
func (r *csiRounds) awaitNothing() (err error) {
	for until := time.Now().Add(harness.Patience); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if err = r.left(r.t.Context()); err == nil {
			return nil
		}
	}
	return fmt.Errorf("at the end of the round there is something left: %w", err)
}

// left returns what is left of the pods and their volumes.
func (r *csiRounds) left(ctx context.Context) error {
	pods, err := r.Client.CoreV1().Pods(r.Namespace).List(ctx, metav1.ListOptions{})
	attachments, err2 := r.Client.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	node, err3 := r.Client.CoreV1().Nodes().Get(ctx, r.Name, metav1.GetOptions{})
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	for _, p := range pods.Items {
		err = errors.Join(err, fmt.Errorf("pod %s, deleted at %v, %s", p.Name, p.DeletionTimestamp, p.Status.Phase))
	}
	for _, a := range attachments.Items {
		if a.Spec.Attacher == r.d.Name {
			err = errors.Join(err, fmt.Errorf("attachment of %s", *a.Spec.Source.PersistentVolumeName))
		}
	}
	if s := node.Status; len(s.VolumesInUse)+len(s.VolumesAttached) > 0 {
		err = errors.Join(err, fmt.Errorf("in use %v, attached %v", s.VolumesInUse, s.VolumesAttached))
	}
	if loops := csidriver.Loops(r.d.Dir); len(loops) > 0 {
		err = errors.Join(err, fmt.Errorf("loop devices %v", loops))
	}
	for _, dir := range []string{"plugins/kubernetes.io", "pods"} {
		if mounts := mountsBelow(r.t, filepath.Join(r.Root, dir)); len(mounts) > 0 {
			err = errors.Join(err, fmt.Errorf("mounts %v", mounts))
		}
	}
	records, err2 := filepath.Glob(filepath.Join(r.Root, "plugins/kubernetes.io/csi/*/*/vol_data.json"))
	if dirs, _ := os.ReadDir(filepath.Join(r.Root, "pods")); len(dirs)+len(records) > 0 {
		err = errors.Join(err, fmt.Errorf("%d directories of pods, records %v", len(dirs), records))
	}
	return errors.Join(err, err2)
}
