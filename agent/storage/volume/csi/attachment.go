package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
)

// PendingError says that a volume is not attached yet, and that the attacher reports no failure.
type PendingError struct {
	Err   error
	usual time.Time // until then
}

func (e *PendingError) Error() string { return e.Err.Error() }

func (e *PendingError) Unwrap() error { return e.Err }

// Usual reports whether that has not lasted longer than usual.
func (e *PendingError) Usual() bool { return time.Now().Before(e.usual) }

// FullError says that a volume is not attached because the node takes no more volumes of its driver.
type FullError struct {
	Err error // the attacher's
	// At is when the attacher said so. News: it was not returned before.
	At   time.Time
	News bool

	bearable time.Time // until then
}

func (e *FullError) Error() string { return e.Err.Error() }

func (e *FullError) Unwrap() error { return e.Err }

// Lasts reports whether the pod has waited as long as the kubelet has a pod wait for its volumes.
func (e *FullError) Lasts() bool { return !time.Now().Before(e.bearable) }

// UnattachedError says which volume is not attached.
type UnattachedError struct {
	Key
	Err error
}

func (e *UnattachedError) Error() string { return e.Err.Error() }

func (e *UnattachedError) Unwrap() error { return e.Err }

// unattached is the error of a volume that is not attached. The operation that failed for it is tried
// again when the attachment changes.
func unattached(k Key, err error) error {
	return &operation.Error{Part: operation.WaitForAttach, Unattached: true,
		Err: &cri.ObjectError{Err: &UnattachedError{k, err}}}
}

// Awaits reports whether err, or one of those that it joins, is that the volume is not attached.
func Awaits(err error, k Key) bool {
	if joined, is := err.(interface{ Unwrap() []error }); is {
		return slices.ContainsFunc(joined.Unwrap(), func(one error) bool { return Awaits(one, k) })
	}
	of, is := errors.AsType[*UnattachedError](err)
	return is && of.Key == k
}

// attachment returns what the attacher says of the volume. since is when the pod began to use the
// volume; zero: it does not yet.
func (m *Mounts) attachment(ctx context.Context, o object, r Request, since time.Time) (
	map[string]string, error) {
	if r.Ephemeral || !o.attaches() {
		return nil, nil
	}
	if m.cfg.Attached == nil {
		return nil, fmt.Errorf("CSI driver %s has its volumes attached, and there is no API server "+
			"to hear of it from; run the agent with --kubeconfig", r.Driver)
	}
	said, ok, err := m.cfg.Attached(ctx, Attachment{r.Key, !since.IsZero()})
	until := cmp.Or(since, time.Now()).Add(m.cfg.Patience)
	full, isFull := errors.AsType[*FullError](err)
	switch {
	case err == nil && !ok:
		err = &PendingError{fmt.Errorf("volume %s is not attached for volume attachment %s: waiting "+
			"for the external-attacher of CSI driver %s", r.Handle, r.AttachmentName(m.cfg.Node),
			r.Driver), until}
	case isFull && !o.recounts():
		err = full.Err
	case isFull:
		full.bearable = until
		if full.News {
			m.cfg.Exhausted(r.Driver)
		}
	}
	return said, err
}

// Lack returns why the node cannot have the volume now: its driver is not registered, or it is not
// attached. nil: it can.
func (m *Mounts) Lack(ctx context.Context, v Volume) error {
	if !m.cfg.Drivers.Registered(v.Driver) {
		return job{Mounts: m, Request: Request{Volume: v}}.absent(notRegistered{v.Driver})
	}
	o, err := m.object(ctx, v.Driver)
	if err == nil {
		_, err = m.attachment(ctx, o, Request{Volume: v}, time.Time{})
	}
	if err != nil {
		return unattached(v.Key, err)
	}
	return nil
}
