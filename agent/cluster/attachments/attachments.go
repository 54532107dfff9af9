// Package attachments says whether a CSI volume is attached to the node, from its VolumeAttachment and
// from the node's own status.
//
// Nodes may read VolumeAttachments one by one, and may not watch them. The attach-detach controller
// writes status.volumesAttached of the node, which is watched, so a volume that waits is looked at when
// that changes; and else in pauses, for errors of the attacher.
//
//	wanted -> in volumesInUse -> in volumesAttached -> VolumeAttachment is attached -> mounted
//
// A volume counts as attached only while the node's object has it in volumesAttached. For a pod that is
// to have it, the same version must have it in volumesInUse: the controller then has seen the use, and
// does not detach the volume. A pod that is not admitted yet uses nothing.
package attachments

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/agent/storage/volume/csi"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/oneline"
)

const (
	// firstPause and lastPause bound the pauses between two looks at a VolumeAttachment, as the kubelet's.
	firstPause, lastPause = 500 * time.Millisecond, 7 * time.Second
	// timeout bounds a request.
	timeout = 10 * time.Second
	// forget is how long a volume is waited for after it was last asked about: its pod may be gone.
	forget = 5 * time.Minute
	// maxMessage bounds what an attacher can have us say.
	maxMessage = 1024
)

// Config says of which node. All fields are required.
type Config struct {
	Client kubernetes.Interface
	Name   string // the node's
	// Node returns the node's object as the API server has it; nil: it has none.
	Node func() *v1.Node
	// Changed receives an element when Node returns another object.
	Changed <-chan struct{}
	// Wake is called when it is worth to ask again about a volume that is not attached. It must not
	// block.
	Wake func(csi.Key)
}

// Attachments knows which volumes are attached. Its methods are safe for concurrent use.
type Attachments struct {
	cfg    Config
	pauses await.Pauses
	asked  chan struct{}

	mu      sync.Mutex // guards the fields below
	waiting map[csi.Key]*wait
}

// wait is a volume that is not attached yet.
type wait struct {
	asked time.Time // last
	inUse bool      // every caller so far uses it
	looks int       // since it is waited for
	next  time.Time // the next look
	said  string    // what is known: why it is not attached
	// full is when the attacher said that the node takes no more volumes, as last reported to a caller.
	full time.Time
}

// New returns Attachments for Run.
func New(c Config) *Attachments {
	return &Attachments{cfg: c, pauses: await.Pauses{First: firstPause, Last: lastPause},
		asked: make(chan struct{}, 1), waiting: map[csi.Key]*wait{}}
}

// Attached returns what the attacher said of an attached volume. Else ok is false and err says why, if
// more is known than that it is not attached yet; Wake then tells when to ask again. A change while
// Attached looks wakes, too.
func (a *Attachments) Attached(ctx context.Context, of csi.Attachment) (
	publishContext map[string]string, ok bool, err error) {
	a.await(of)
	found, err := a.look(ctx, of)
	if err = a.answered(of, err); err == nil {
		return found.Status.AttachmentMetadata, true, nil
	}
	if errors.Is(err, errPending) {
		return nil, false, nil
	}
	return nil, false, err
}

// errPending: the attacher has not attached the volume yet.
var errPending = errors.New("the volume is not attached yet")

// look reads the attachment of a volume; an error says why it is not attached.
func (a *Attachments) look(ctx context.Context, of csi.Attachment) (*storagev1.VolumeAttachment, error) {
	v := of.Key
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	name := v.AttachmentName(a.cfg.Name)
	found, err := a.cfg.Client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		// The node authorizer also forbids what does not exist, and learns of an attachment a moment later
		// than the API server has it.
		return nil, errPending
	case err != nil:
		return nil, operation.Unanswered{Err: fmt.Errorf("volume %s has GET error for volume attachment %s: %w",
			v.Handle, name, requests.Short(err))}
	case found.Spec.Attacher != v.Driver || found.Spec.NodeName != a.cfg.Name:
		return nil, fmt.Errorf("volume attachment %s is of attacher %q and node %q, not of %s and this node", name,
			found.Spec.Attacher, found.Spec.NodeName, v.Driver)
	case found.DeletionTimestamp != nil:
		return nil, errors.New("volume attachment is being deleted")
	case !found.Status.Attached && found.Status.AttachError != nil:
		return nil, attachError(found.Status.AttachError)
	case !found.Status.Attached:
		return nil, errPending
	}
	return found, a.agreed(of)
}

// agreed checks that the controller has attached the volume, and has seen its use.
func (a *Attachments) agreed(v csi.Attachment) error {
	node := a.cfg.Node()
	switch {
	case node == nil:
		return errors.New("the node is not registered")
	case !Agreed(node, v1.UniqueVolumeName(v.Name()), v.InUse):
		return errPending // the status is written soon
	}
	return nil
}

// Agreed reports whether the node's object says that the controller has attached a volume, and, if it is
// in use, that the controller has seen that.
func Agreed(node *v1.Node, name v1.UniqueVolumeName, inUse bool) bool {
	return node != nil && (!inUse || slices.Contains(node.Status.VolumesInUse, name)) &&
		slices.ContainsFunc(node.Status.VolumesAttached, func(is v1.AttachedVolume) bool {
			return is.Name == name
		})
}

// attachError returns what an attacher says against a volume, in its words.
func attachError(e *storagev1.VolumeError) error {
	err := errors.New(oneline.Cut(e.Message, maxMessage))
	if e.ErrorCode != nil && codes.Code(*e.ErrorCode) == codes.ResourceExhausted {
		return &csi.FullError{Err: err, At: e.Time.Time}
	}
	return err
}

// await has a volume looked at until it is attached.
func (a *Attachments) await(v csi.Attachment) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[v.Key]
	if w == nil {
		w = &wait{next: time.Now().Add(a.pauses.After(0)), inUse: true, said: errPending.Error()}
		a.waiting[v.Key] = w
	}
	w.asked, w.inUse = time.Now(), w.inUse && v.InUse
	await.Wake(a.asked)
}

// answered notes the answer that a caller gets about a volume. That the node is full is news once.
func (a *Attachments) answered(v csi.Attachment, why error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if why == nil {
		delete(a.waiting, v.Key)
		return nil
	}
	w := a.waiting[v.Key]
	if w == nil { // another caller found it attached meanwhile
		return why
	}
	w.said = why.Error()
	if full, is := errors.AsType[*csi.FullError](why); is {
		full.News = !w.full.Equal(full.At)
		w.full = full.At
	}
	return why
}

// Run looks at the volumes that are waited for until ctx ends.
func (a *Attachments) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.cfg.Changed:
			for _, v := range a.arrived() {
				a.check(ctx, v)
			}
		case <-a.asked:
		case <-await.At(a.next()):
			for _, v := range a.due(time.Now()) {
				a.check(ctx, v)
			}
		}
	}
}

// arrived returns the waiting volumes that the node's status has as attached, in order.
func (a *Attachments) arrived() (out []csi.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for v, w := range a.waiting {
		if a.agreed(csi.Attachment{Key: v, InUse: w.inUse}) == nil {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, byName)
	return out
}

func byName(a, b csi.Key) int { return cmp.Compare(a.Name(), b.Name()) }

// asks returns what the callers that wait for a volume ask.
func (a *Attachments) asks(v csi.Key) csi.Attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.waiting[v]
	return csi.Attachment{Key: v, InUse: w == nil || w.inUse}
}

// check looks at a volume, and wakes its waiters if there is news.
func (a *Attachments) check(ctx context.Context, v csi.Key) {
	_, err := a.look(ctx, a.asks(v))
	a.mu.Lock()
	w := a.waiting[v]
	news := w != nil && (err == nil || err.Error() != w.said)
	if news && err != nil {
		w.said = err.Error()
	}
	a.mu.Unlock()
	if news {
		a.cfg.Wake(v)
	}
}

// next returns when a volume is looked at next; the zero time: never.
func (a *Attachments) next() (at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.waiting {
		at = await.Earlier(at, w.next)
	}
	return at
}

// due returns the volumes whose pause is over, in order, and forgets those no longer asked about.
func (a *Attachments) due(now time.Time) (out []csi.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for v, w := range a.waiting {
		switch {
		case now.Sub(w.asked) > forget:
			delete(a.waiting, v)
		case !now.Before(w.next):
			w.looks++
			w.next = now.Add(a.pauses.After(w.looks))
			out = append(out, v)
		}
	}
	slices.SortFunc(out, byName)
	return out
}
