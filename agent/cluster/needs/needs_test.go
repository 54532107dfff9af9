package needs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/objects"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/internal/podtest"
)

// world is what pods lack, as the test has it.
type world struct {
	mu      sync.Mutex
	object  *objects.Lack
	unknown bool
	pvc     error
	reads   int
	changed int
	follows map[types.UID]bool
	hang    bool
	during  func() // is done while PVCs are read next; nil: nothing
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) Expect(pod *v1.Pod)            { w.set(func() { w.follows[pod.UID] = true }) }
func (w *world) Dismiss(pod types.UID)         { w.set(func() { delete(w.follows, pod) }) }
func (w *world) Look(context.Context, *v1.Pod) {}

func (w *world) Lack(*v1.Pod) *objects.Lack {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.object
}

func (w *world) Lacking(ctx context.Context, _ *v1.Pod) (unknown bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if during := w.during; during != nil {
		w.during = nil
		w.mu.Unlock()
		during()
		w.mu.Lock()
	}
	if w.hang {
		w.mu.Unlock()
		<-ctx.Done()
		w.mu.Lock()
		return true, ctx.Err()
	}
	return w.unknown, w.pvc
}

func (w *world) taken() (reads, changed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	reads, changed = w.reads, w.changed
	w.reads, w.changed = 0, 0
	return reads, changed
}

func claimant() *v1.Pod {
	return podtest.New("pod", podtest.Containers("main"), podtest.Mounts(v1.Volume{Name: "v",
		VolumeSource: v1.VolumeSource{
			PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}))
}

func (w *world) run(t *testing.T) (*Needs, func()) {
	w.follows = map[types.UID]bool{}
	n := New(Config{Objects: w, PVCs: w, Changed: func() { w.set(func() { w.changed++ }) }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	return n, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// A pod's PVCs are read until they are good, and each other answer is told, once.
func TestPVCs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{pvc: errors.New("PVC is not bound")}
		n, stop := w.run(t)
		defer stop()
		pod := claimant()
		n.Begin(pod)
		n.Begin(pod)
		n.Look(t.Context(), pod)
		synctest.Wait()
		want := decide.Lack{Reason: "FailedMount", Why: "PVC is not bound"}
		if got := n.Lack(pod); got != want {
			t.Errorf("it lacks %+v", got)
		}
		time.Sleep(time.Minute)
		if reads, changed := w.taken(); changed != 1 || reads < 25 || reads > 35 {
			t.Errorf("in a minute %d reads, %d changes", reads, changed)
		}
		w.set(func() { w.unknown, w.pvc = true, errors.New("no answer") })
		time.Sleep(10 * time.Minute)
		if got := n.Lack(pod); got != (decide.Lack{Unknown: true, Reason: "FailedMount",
			Why: "no answer"}) {
			t.Errorf("it lacks %+v", got)
		}
		if reads, changed := w.taken(); changed != 1 || reads < 15 || reads > 30 {
			t.Errorf("without answers in ten minutes %d reads, %d changes", reads, changed)
		}
		w.set(func() { w.unknown, w.pvc = false, nil })
		time.Sleep(time.Minute)
		if got := n.Lack(pod); got != (decide.Lack{}) {
			t.Errorf("it lacks %+v", got)
		}
		if reads, changed := w.taken(); changed != 1 || reads != 1 {
			t.Errorf("when they are good %d reads, %d changes", reads, changed)
		}
		n.End(pod.UID)
		if len(w.follows)+len(n.pods) != 0 {
			t.Errorf("left are %v, %v", w.follows, n.pods)
		}
	})
}

// Of what a pod lacks that is told which is known to be missing, in the words of the kubelet's events.
func TestLack(t *testing.T) {
	missing := &objects.Lack{Volume: "v", Err: errors.New(`secret "s" not found`)}
	for name, test := range map[string]struct {
		object *objects.Lack
		pvc    error
		want   decide.Lack
	}{
		"a volume": {missing, nil, decide.Lack{Reason: "FailedMount",
			Why: `MountVolume.SetUp failed for volume "v" : secret "s" not found`}},
		"an environment": {&objects.Lack{Container: "c", Err: missing.Err}, nil, decide.Lack{
			Container: "c", Reason: "Failed", Why: `Error: secret "s" not found`}},
		"a claim":        {nil, errors.New("no claim"), decide.Lack{Reason: "FailedMount", Why: "no claim"}},
		"nothing at all": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{object: test.object, pvc: test.pvc}
				n, stop := w.run(t)
				defer stop()
				n.Begin(claimant())
				synctest.Wait()
				if got := n.Lack(claimant()); got != test.want {
					t.Errorf("it lacks %+v", got)
				}
			})
		})
	}
}

// A server that hangs keeps nobody from ending, and nobody waits for it longer than one wants.
func TestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{hang: true}
		n, stop := w.run(t)
		pod := claimant()
		n.Begin(pod)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		n.Look(ctx, pod)
		if took := time.Since(began); took != time.Second {
			t.Errorf("it looked for %v", took)
		}
		if got := n.Lack(pod); !got.Unknown {
			t.Errorf("it lacks %+v", got)
		}
		stop()
		n.Begin(&v1.Pod{})
		n.End(pod.UID)
	})
}

// The PVCs of a pod that waits for a volume to be attached are read at once when that may be, and no
// others.
func TestAttachmentChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := csi.Key{Driver: "d", Handle: "v"}
		w := &world{pvc: errors.Join(errors.New("other"),
			&csi.UnattachedError{Key: disk, Err: errors.New("it is not attached")})}
		n, stop := w.run(t)
		defer stop()
		w.during = func() { n.AttachmentChanged(disk) }
		n.Begin(claimant())
		synctest.Wait()
		if reads, _ := w.taken(); reads != 2 {
			t.Errorf("%d reads when the volume was attached while the claims were read", reads)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.taken()
		n.AttachmentChanged(csi.Key{Driver: "d", Handle: "other"})
		synctest.Wait()
		if reads, _ := w.taken(); reads != 0 {
			t.Errorf("%d reads when another volume was attached", reads)
		}
		w.set(func() { w.pvc = nil })
		n.AttachmentChanged(disk)
		synctest.Wait()
		if reads, changed := w.taken(); reads != 1 || changed != 1 {
			t.Errorf("when the volume was attached %d reads, %d changes", reads, changed)
		}
	})
}
