package attachments

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/internal/await"
)

var disk = csi.Key{Driver: "d.csi.test", Handle: "disk"}

// world is an API server with one volume, and the node's object.
type world struct {
	*Attachments
	client  *fake.Clientset
	changed chan struct{}

	mu    sync.Mutex // guards the fields below
	node  *v1.Node
	woken []csi.Key
	gets  int
	// during is done while the node's object is read next; nil: nothing.
	during func()
}

func start(t *testing.T) *world {
	w := &world{client: fake.NewClientset(), changed: make(chan struct{}, 1), node: &v1.Node{}}
	w.client.PrependReactor("get", "volumeattachments", func(clienttesting.Action) (bool, runtime.Object, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.gets++
		return false, nil, nil
	})
	w.Attachments = New(Config{Client: w.client, Name: "me", Changed: w.changed,
		Node: func() *v1.Node {
			w.mu.Lock()
			is, during := w.node, w.during
			w.during = nil
			w.mu.Unlock()
			if during != nil {
				during()
			}
			return is
		},
		Wake: func(v csi.Key) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.woken = append(w.woken, v)
		}})
	ctx, cancel := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { cancel(); ended.Wait() })
	return w
}

// put writes the volume's attachment.
func (w *world) put(t *testing.T, s storagev1.VolumeAttachmentStatus) {
	t.Helper()
	api, is := w.client.StorageV1().VolumeAttachments(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: disk.AttachmentName("me")}, Status: s,
		Spec: storagev1.VolumeAttachmentSpec{Attacher: disk.Driver, NodeName: "me"}}
	_, err := api.Update(t.Context(), is, metav1.UpdateOptions{})
	if err != nil {
		_, err = api.Create(t.Context(), is, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// set changes the node's object.
func (w *world) set(inUse, attached bool) {
	now := &v1.Node{}
	if inUse {
		now.Status.VolumesInUse = []v1.UniqueVolumeName{v1.UniqueVolumeName(disk.Name())}
	}
	if attached {
		now.Status.VolumesAttached = []v1.AttachedVolume{{Name: v1.UniqueVolumeName(disk.Name())}}
	}
	w.mu.Lock()
	w.node = now
	w.mu.Unlock()
	await.Wake(w.changed)
}

func (w *world) count() (woken, gets int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.woken), w.gets
}

// asks checks what Attached says.
func (w *world) asks(t *testing.T, ok bool, problem string) {
	t.Helper()
	said, is, err := w.Attached(t.Context(), csi.Attachment{Key: disk, InUse: true})
	text := ""
	if err != nil {
		text = err.Error()
	}
	if is != ok || (problem == "") != (err == nil) || !strings.Contains(text, problem) {
		t.Errorf("asked for the volume: %t, %v; want %t, %q", is, err, ok, problem)
	}
	if ok && said["device"] != "sdx" {
		t.Errorf("the publish context is %v", said)
	}
}

// TestAttached: a volume is attached once one version of the node has it in use and attached, and its
// attachment is. The change of the node wakes who waits; nobody else is asked about.
func TestAttached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.asks(t, false, "")
		w.set(true, false)
		w.put(t, storagev1.VolumeAttachmentStatus{Attached: true,
			AttachmentMetadata: map[string]string{"device": "sdx"}})
		w.asks(t, false, "") // the controller has not written the node yet
		w.set(false, true)
		w.asks(t, false, "") // and it may detach what is not in use
		if woken, _ := w.count(); woken != 0 {
			t.Errorf("%d were woken for nothing", woken)
		}
		began := time.Now()
		w.set(true, true)
		if woken, _ := w.count(); woken != 1 || time.Since(began) > 0 {
			t.Errorf("%d were woken after %v, want 1 at once", woken, time.Since(began))
		}
		w.asks(t, true, "")
		_, before := w.count()
		time.Sleep(time.Hour)
		if _, gets := w.count(); gets != before {
			t.Errorf("%d more requests about an attached volume", gets-before)
		}
	})
}

// TestAttachedMeanwhile: what changes while a volume is looked at wakes, too.
func TestAttachedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.put(t, storagev1.VolumeAttachmentStatus{Attached: true})
		w.set(true, false)
		w.count()
		w.during = func() {
			w.set(true, true)
			synctest.Wait()
		}
		w.asks(t, false, "")
		began := time.Now()
		if woken, _ := w.count(); woken == 0 || time.Since(began) > 0 {
			t.Errorf("%d were woken after %v, want 1 at once", woken, time.Since(began))
		}
	})
}

// TestLooks: a volume that waits is looked at in growing pauses, and forgotten when nobody asks about
// it any more.
func TestLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.asks(t, false, "")
		var pauses []time.Duration
		last, gets := time.Now(), 1
		for time.Since(last) < time.Minute {
			time.Sleep(50 * time.Millisecond)
			if _, now := w.count(); now > gets {
				pauses, last, gets = append(pauses, time.Since(last)), time.Now(), now
			}
		}
		if n := len(pauses); n < 40 || n > 60 || pauses[0] > time.Second || pauses[n-1] > lastPause+time.Second ||
			pauses[n-1] < lastPause-time.Second {
			t.Errorf("the pauses are %v", pauses)
		}
		if woken, _ := w.count(); woken != 0 {
			t.Errorf("%d were woken without news", woken)
		}
	})
}

// TestUnanswered: that the API server does not answer says nothing of the volume.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.client.PrependReactor("get", "volumeattachments", func(clienttesting.Action) (bool, runtime.Object,
			error) {
			return true, nil, errors.New("no route to host")
		})
		_, ok, err := w.Attached(t.Context(), csi.Attachment{Key: disk, InUse: true})
		if _, is := errors.AsType[operation.Unanswered](err); ok || !is ||
			!strings.HasPrefix(err.Error(), "volume "+disk.Handle+" has GET error for volume attachment ") {
			t.Errorf("without an answer: %t, %v", ok, err)
		}
	})
}

// TestAttachError: what the attacher says is told, with a bound, and its end too. That the node is full
// is told once for each error.
func TestAttachError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(true, true)
		w.asks(t, false, "")
		full := int32(8)
		failed := func(message string) {
			w.put(t, storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{
				Time: metav1.Now(), Message: message, ErrorCode: &full}})
		}
		failed("no room\nat all" + strings.Repeat("x", 1<<20))
		time.Sleep(time.Second)
		if woken, _ := w.count(); woken != 1 {
			t.Errorf("%d were woken by the error", woken)
		}
		w.asks(t, false, "no room at all")
		if _, _, err := w.Attached(t.Context(), csi.Attachment{Key: disk, InUse: true}); len(err.Error()) > 2*maxMessage {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
		isNews := func(want bool) {
			t.Helper()
			_, _, err := w.Attached(t.Context(), csi.Attachment{Key: disk, InUse: true})
			if e, is := errors.AsType[*csi.FullError](err); !is || e.News != want {
				t.Errorf("a full node is %+v, want it to be news: %t", e, want)
			}
		}
		isNews(false)
		time.Sleep(10 * time.Second)
		failed("still none")
		time.Sleep(10 * time.Second)
		isNews(true)
		isNews(false)
		w.asks(t, false, "still none")
		full = 13
		failed("on fire")
		_, _, err := w.Attached(t.Context(), csi.Attachment{Key: disk, InUse: true})
		if _, is := errors.AsType[*csi.FullError](err); is {
			t.Errorf("a node with an error of another kind is full: %v", err)
		}
		before, _ := w.count()
		w.put(t, storagev1.VolumeAttachmentStatus{Attached: true,
			AttachmentMetadata: map[string]string{"device": "sdx"}})
		time.Sleep(10 * time.Second)
		if woken, _ := w.count(); woken == before {
			t.Error("nobody was woken when the volume was attached after an error")
		}
		w.asks(t, true, "")
	})
}

// TestForeign: an attachment of that name that is another's, or that ends, is none.
func TestForeign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		w.set(true, true)
		w.put(t, storagev1.VolumeAttachmentStatus{Attached: true})
		api := w.client.StorageV1().VolumeAttachments()
		is, err := api.Get(t.Context(), disk.AttachmentName("me"), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		is.Spec.NodeName = "other"
		if _, err := api.Update(t.Context(), is, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.asks(t, false, "node \"other\"")
		now := metav1.Now()
		is.Spec.NodeName, is.DeletionTimestamp = "me", &now
		if _, err := api.Update(t.Context(), is, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.asks(t, false, "is being deleted")
	})
}

// TestNotAdmitted: the volume of a pod that is not admitted is attached once the controller says so,
// although the node does not use it; the change of the node wakes who waits for it.
func TestNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		asks := func(inUse, want bool) {
			t.Helper()
			_, is, err := w.Attached(t.Context(), csi.Attachment{Key: disk, InUse: inUse})
			if is != want || err != nil {
				t.Errorf("asked for the volume, in use: %t: %t, %v; want %t", inUse, is, err, want)
			}
		}
		w.put(t, storagev1.VolumeAttachmentStatus{Attached: true})
		asks(false, false)
		w.set(false, true)
		if woken, _ := w.count(); woken != 1 {
			t.Errorf("%d were woken, want 1", woken)
		}
		asks(false, true)
		asks(true, false)
	})
}
