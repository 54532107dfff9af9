package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/agent/storage/volume/shared"
	"github.com/numalet/numalet/internal/await"
)

// MountsConfig configures NewMounts.
type MountsConfig struct {
	Drivers *Drivers
	// Root is the agent's root directory without symbolic links, and Node the node's name.
	Root, Node string
	// Objects reads objects; nil: there is no API server.
	Objects Objects
	// Attached returns what the attacher of a driver says of a volume that is attached to the node.
	// Else ok is false, and err says why if the attacher failed. It must not block long; nil: there
	// is no API server to read attachments from.
	Attached func(ctx context.Context, of Attachment) (
		publishContext map[string]string, ok bool, err error)
	// Exhausted is called when an attacher says that the node takes no more volumes of a driver which
	// is asked time and again how many it takes. It must not block. Optional.
	Exhausted func(driver string)
	// Used is called after what InUse returns has changed. It must not block. Optional.
	Used func()
	// Wake has a pod looked at that waits for a driver or an attachment. It must not block. Optional.
	Wake     func(pod types.UID)
	Recovery RecoveryConfig
	// Done is called after each operation on a volume that the caller of Mounts does not count itself. It
	// must not block. Optional.
	Done func(operation.Done)
	// Pauses are between calls for a volume that fail; zero: from 0.5 s to 2 min 2 s, the kubelet's.
	Pauses await.Pauses
	// Patience is how long a pod waits for an attachment before that is unusual; 0: 2 min 3 s, as long as
	// the kubelet has a pod wait for its volumes.
	Patience time.Duration
}

// Attachment is a volume that is to be attached to the node.
type Attachment struct {
	Key
	// InUse: a pod is to have the volume, and InUse has it.
	InUse bool
}

// Mounts has the volumes of the node's pods staged and published by their drivers, and takes them
// back. Its methods are safe for concurrent use; those for one pod come one after another.
//
//	nothing -> wanted -> known: the record is written, NodePublishVolume is called
//	   ^         |         |
//	   +------ leaving <---+   NodeUnpublishVolume is called until it succeeds, if it is known
//
// A volume that is staged is unstaged once no pod wants it, by a goroutine of Run.
type Mounts struct {
	*driverObjects
	*recovery
	cfg   MountsConfig
	paths paths
	book  book
}

// NewMounts reads what is staged and published.
func NewMounts(ctx context.Context, cfg MountsConfig) *Mounts {
	if cfg.Used == nil {
		cfg.Used = func() {}
	}
	if cfg.Done == nil {
		cfg.Done = func(operation.Done) {}
	}
	if cfg.Wake == nil {
		cfg.Wake = func(types.UID) {}
	}
	if cfg.Recovery.Lost == nil {
		cfg.Recovery.Lost = func(string) {}
	}
	if cfg.Recovery.Origins == nil {
		cfg.Recovery.Origins = mountOrigins
	}
	if cfg.Exhausted == nil {
		cfg.Exhausted = func(string) {}
	}
	cfg.Patience = cmp.Or(cfg.Patience, 2*time.Minute+3*time.Second)
	cfg.Pauses = cmp.Or(cfg.Pauses, shared.Pauses)
	m := &Mounts{cfg: cfg, paths: paths(cfg.Root)}
	m.book = newBook(unstager{m}.ends())
	m.driverObjects = &driverObjects{
		objects: cfg.Objects, book: m.book, pauses: cfg.Pauses, used: cfg.Used,
		again: map[string]bool{},
	}
	m.recovery = newRecovery(ctx, m)
	m.book.EndAllUnused()
	return m
}

// Run has volumes unstaged that no pod uses, until ctx ends. Call it once.
func (m *Mounts) Run(ctx context.Context) error {
	m.book.Go(m.lookAtDrivers)
	m.judge()
	m.book.Run(ctx)
	return nil
}

// InUse returns the unique names of the volumes that pods of the node use, or that are staged on
// it, ascending: these cannot be detached.
func (m *Mounts) InUse() (out []string) {
	for _, k := range m.book.keys((*entry).mayBeAttached) {
		out = append(out, k.Name())
	}
	return out
}

// IsPublished reports whether a pod has the volume from a driver that is registered: for another one
// it only has to be published.
func (m *Mounts) IsPublished(k Key) (is bool) {
	m.book.Change(k, func(e *entry) {
		for _, now := range e.Users {
			is = is || now.done && !now.leaving
		}
	})
	return is && m.cfg.Drivers.Registered(k.Driver)
}

// DriversChanged has pods looked at that wait for a driver which is registered now.
func (m *Mounts) DriversChanged() {
	m.book.forgive(m.cfg.Drivers.Registered)
	m.wake(func(k Key) bool { return m.cfg.Drivers.Registered(k.Driver) })
}

// AttachmentChanged has pods looked at that wait for a volume to be attached.
func (m *Mounts) AttachmentChanged(of Key) {
	m.wake(func(k Key) bool { return k == of })
}

// wake has pods looked at that want such a volume and do not have it yet, or give it up.
func (m *Mounts) wake(which func(k Key) bool) {
	for _, pod := range m.book.Pods(func(k Key, _ *entry, is state) bool {
		return (!is.done || is.leaving) && which(k)
	}) {
		m.cfg.Wake(pod)
	}
}

// Request is a volume that a pod is to have.
type Request struct {
	Volume
	Pod *v1.Pod
}

func (r Request) use() use { return use{r.Pod.UID, r.Path, r.Block} }

// Result says what is left to do with a published volume.
type Result struct {
	// Give: give the files to the pod's fsGroup.
	Give bool
}

// Want notes that a pod is to have a volume, which is in use from then on.
func (m *Mounts) Want(r Request) {
	m.Recall(r.Volume, r.Pod.UID, "the pod that uses it")
	other := false
	m.book.Change(r.Key, func(e *entry) {
		other = len(e.Users)+len(e.places) == 0
		was := e.Users[r.use()]
		e.Users[r.use()] = state{known: was.known, only: was.only, since: cmp.Or(was.since, time.Now())}
		e.unattached = r.Ephemeral
	})
	if other {
		m.cfg.Used()
	}
}

// errGone is the error of a mount that is no longer wanted.
var errGone = errors.New("the pod no longer wants the volume")

// SetUp stages and publishes a volume that was wanted, and calls then with where it is published.
// It waits for the driver, at most as long as calls have. A call that fails is not repeated before a
// pause is over, and Leave ends a call that is under way. It holds the volume's lock: meanwhile no other
// caller has the volume staged, published, unpublished or expanded.
func (m *Mounts) SetUp(ctx context.Context, r Request, then func(target string, r Result) error) error {
	done, err := m.book.Take(ctx, r.Key)
	if err != nil {
		return err
	}
	defer done()
	ctx, end, now, wanted := m.book.begin(ctx, r.Key, r.use())
	defer end()
	if !wanted {
		return errGone
	}
	o, err := m.object(ctx, r.Driver)
	if err == nil {
		err = o.lives(r.Volume)
	}
	if err != nil {
		return fmt.Errorf("%s: mounter.SetupAt failed to check volume lifecycle mode: %w", pluginName,
			err)
	}
	m.notice(r.Driver, o)
	began := time.Now()
	attachment, err := m.attachment(ctx, o, r, now.since)
	if err != nil {
		return unattached(r.Key, err)
	}
	if m.book.verify(r.Key) {
		m.did(r.Key, operation.Verify, began, nil)
	}
	job := job{Mounts: m, Request: r, object: o, attachment: attachment}
	if !r.Ephemeral {
		if err := job.stage(ctx); err != nil {
			return operation.Failed(job.staging(), err)
		}
	}
	delegated, err := job.publish(ctx)
	if err == nil {
		err = then(m.paths.target(r.use()), Result{Give: !delegated && !r.Block && o.gives(r.Volume)})
	}
	if err != nil {
		return operation.Failed(job.publishing(), err)
	}
	job.settle(state{known: true, done: true})
	return nil
}
