package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/await"
)

// session asks for the options and follows the list; listed reports whether a list came.
func (l *link) session(ctx context.Context, s linkSettings) (listed bool, err error) {
	options, err := l.options(ctx, s)
	if err != nil {
		return false, fmt.Errorf("GetDevicePluginOptions: %w; a plugin has to answer it at once", err)
	}
	if l.way == ByRegister {
		l.tellOf(ctx, l.behavior.answered(options))
	}
	l.askLifecycle(ctx, s.cfg.Deadlines.Lifecycle, &options)
	return l.follow(ctx, s, options)
}

// options returns the options of a session; the first session has them from the registration, if
// the plugin was asked then.
func (l *link) options(ctx context.Context, s linkSettings) (Options, error) {
	if asked := l.behavior.asked; asked != nil {
		l.behavior.asked = nil
		return *asked, nil
	}
	return l.askOptions(ctx, s.metrics, s.cfg.Deadlines.Options)
}

// lateError says that a plugin missed a deadline other than that of a gRPC call.
type lateError string

func (e lateError) Error() string { return string(e) }

// Is makes errors.Is match context.DeadlineExceeded.
func (e lateError) Is(target error) bool { return target == context.DeadlineExceeded }

// follow reads ListAndWatch until the stream ends; listed reports whether a list came.
func (l *link) follow(ctx context.Context, s linkSettings, options Options) (
	listed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	f := follower{link: l, linkSettings: s, options: options, lister: newLister(s.cfg.NodeIDs),
		began: time.Now()}
	defer f.settling.Wait()
	defer cancel(nil)
	late := lateError(fmt.Sprintf("no list of devices came in time (%s); a plugin has to "+
		"send its list as soon as it is asked", s.cfg.Deadlines.FirstList))
	f.first = time.AfterFunc(s.cfg.Deadlines.FirstList, func() { cancel(late) })
	defer f.first.Stop()
	err = socket.Latest(ctx, func(ctx context.Context) (grpc.ClientStream, error) {
		return l.listAndWatch(ctx, s.cfg.MaxListBytes)
	}, func(frame socket.Frame) error { return f.next(ctx, frame) })
	ended := ctx.Err() == nil && l.ends(ctx, err)
	switch {
	case context.Cause(ctx) == late && !f.listed:
		err = fmt.Errorf("ListAndWatch: %w", late)
	case errors.Is(err, io.EOF):
		err = errors.New("it ended its ListAndWatch stream; a plugin has to keep it open and " +
			"send the list again when a device changes")
	default:
		err = fmt.Errorf("ListAndWatch: %w", err)
	}
	if !f.listed && ctx.Err() == nil || errors.Is(err, context.DeadlineExceeded) {
		l.called(s.metrics, rpcList, time.Since(f.began), err)
	}
	if ended {
		err = &endedError{err}
	}
	return f.listed, err
}

// follower reads the lists of a session.
type follower struct {
	*link
	linkSettings
	options  Options
	lister   *lister
	where    locator
	began    time.Time
	first    *time.Timer    // until the first list
	listed   bool           // a list came
	settling sync.WaitGroup // of the grace of an empty first list
}

// next hands a list to the loop, if it says anything new.
func (f *follower) next(ctx context.Context, frame socket.Frame) error {
	now, changed, err := f.lister.read(frame.ReadOnlyData())
	if err != nil {
		return err
	}
	repeated := 0
	if f.listed && !changed && !frame.Varied {
		repeated = 1 + frame.Dropped
	}
	f.tellOf(ctx, f.behavior.complaints.Load().listed(time.Now(), frame.Len(), repeated))
	if !f.listed {
		f.first.Stop()
		f.called(f.metrics, rpcList, time.Since(f.began), nil)
	}
	if changed || !f.listed {
		if f.options.Places {
			now.addresses = f.where.of(now.devices, func(ids []string) (map[string]string, bool) {
				return f.places(ctx, f.linkSettings, ids)
			})
		}
		f.hand(ctx, now)
	}
	if !f.listed && len(now.devices) == 0 { // after hand: the loop knows of the list
		f.settling.Go(func() {
			await.For(ctx, f.cfg.Graces.Empty)
			f.report(ctx, event{kind: linkGraceOver, link: f.link})
		})
	}
	f.listed, f.last.refused = true, false
	return nil
}

// endedError says that the plugin itself ended its list while its connection stayed up.
type endedError struct{ error }

func (e *endedError) Unwrap() error { return e.error }

// hand sends a list to the loop, and afterwards the reasons of its unhealthy devices.
func (f *follower) hand(ctx context.Context, now list) {
	f.tell(ctx, now)
	f.last.devices = len(now.devices)
	unhealthy := now.unhealthy(mostReasons)
	now.reasons.Awaited = f.options.Reasons && len(unhealthy) > 0
	f.report(ctx, event{kind: linkListed, link: f.link, options: f.options, list: now})
	if now.reasons.Awaited {
		now.reasons = Reasons{ByID: f.reasons(ctx, f.linkSettings, unhealthy)}
		f.report(ctx, event{kind: linkExplained, link: f.link, list: now})
	}
}

// isTooLong reports whether gRPC refused a message for its length. Only the text tells: a plugin
// may end its stream with the same code.
func isTooLong(err error) bool {
	return status.Code(err) == codes.ResourceExhausted &&
		strings.Contains(err.Error(), "received message larger than max")
}

// refuse reports a list that is too long, once while that lasts, and returns the text.
func (l *link) refuse(ctx context.Context, s linkSettings) string {
	s.metrics.refused.WithLabelValues(l.resource).Inc()
	refused := RefusedList{
		Resource: l.resource, Socket: l.socket, Kept: l.last.devices, Limit: s.cfg.MaxListBytes,
	}
	if l.last.refused {
		return refused.String()
	}
	l.last.refused = true
	klog.FromContext(ctx).Error(nil, "Device plugin sends a list that is too long",
		"limitBytes", refused.Limit, "kept", refused.Kept, "explanation", refused.String())
	s.cfg.Refused(refused)
	return refused.String()
}

// tell logs what is wrong with a list, once while that lasts.
func (l *link) tell(ctx context.Context, now list) {
	log := klog.FromContext(ctx)
	if l.last.defects.Begins(now.defects) {
		log.Info("Device plugin sends a list with errors", "devices", len(now.devices),
			"errors", now.defects.String())
	}
	if len(now.devices) == l.last.devices {
		log = log.V(2) // health may change often
	}
	log.V(2).Info("Device list", "devices", len(now.devices), "healthy", now.healthy)
}
