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

	"github.com/numalet/numalet/internal/await"
)

// session asks for the options and follows the list; listed reports whether a list came.
func (l *link) session(ctx context.Context, s linkSettings) (listed bool, err error) {
	options, err := l.options(ctx, s)
	if err != nil {
		return false, fmt.Errorf("GetDevicePluginOptions: %w; a plugin has to answer it at once", err)
	}
	if l.way == ByRegister {
		text, news := l.behavior.answered(options)
		l.tellOf(ctx, text, news)
	}
	l.askLifecycle(ctx, s.cfg.Deadlines.Options, &options)
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
	var settling sync.WaitGroup
	defer settling.Wait()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := lateError(fmt.Sprintf("no list of devices came in time (%s); a plugin has to "+
		"send its list as soon as it is asked", s.cfg.Deadlines.FirstList))
	first := time.AfterFunc(s.cfg.Deadlines.FirstList, func() { cancel(late) })
	defer first.Stop()
	began := time.Now()
	lister := newLister(s.cfg.NodeIDs)
	where := locator{}
	stream, err := l.listAndWatch(ctx, s.cfg.MaxListBytes)
	for err == nil {
		var now list
		var changed bool
		var size int
		if now, changed, size, err = receive(stream, lister); err != nil {
			break
		}
		text, news := l.behavior.complaints.Load().listed(time.Now(), size, listed && !changed)
		l.tellOf(ctx, text, news)
		if !listed {
			first.Stop()
			l.called(s.metrics, rpcList, time.Since(began), nil)
		}
		if changed || !listed {
			if options.Places {
				now.addresses = where.of(now.devices, func(ids []string) (map[string]string, bool) {
					return l.places(ctx, s, ids)
				})
			}
			l.hand(ctx, s, options, now)
		}
		if !listed && len(now.devices) == 0 { // after hand: the loop knows of the list
			settling.Go(func() {
				await.For(ctx, s.cfg.Graces.Empty)
				s.report(ctx, event{kind: linkSettled, link: l})
			})
		}
		listed, l.last.refused = true, false
	}
	ended := ctx.Err() == nil && l.ends(ctx, err)
	switch {
	case context.Cause(ctx) == late && !listed:
		err = fmt.Errorf("ListAndWatch: %w", late)
	case errors.Is(err, io.EOF):
		err = errors.New("it ended its ListAndWatch stream; a plugin has to keep it open and " +
			"send the list again when a device changes")
	default:
		err = fmt.Errorf("ListAndWatch: %w", err)
	}
	if !listed && ctx.Err() == nil || errors.Is(err, context.DeadlineExceeded) {
		l.called(s.metrics, rpcList, time.Since(began), err)
	}
	if ended {
		err = &endedError{err}
	}
	return listed, err
}

// endedError says that the plugin itself ended its list while its connection stayed up.
type endedError struct{ error }

func (e *endedError) Unwrap() error { return e.error }

// hand sends a list to the loop, and afterwards the reasons of its unhealthy devices.
func (l *link) hand(ctx context.Context, s linkSettings, options Options, now list) {
	l.tell(ctx, now)
	l.last.devices = len(now.devices)
	unhealthy := now.unhealthy(mostReasons)
	now.reasons.Awaited = options.Reasons && len(unhealthy) > 0
	s.report(ctx, event{kind: linkListed, link: l, options: options, list: now})
	if now.reasons.Awaited {
		now.reasons = Reasons{ByID: l.reasons(ctx, s, unhealthy)}
		s.report(ctx, event{kind: linkExplained, link: l, list: now})
	}
}

// receive reads the next message and returns its size in bytes.
func receive(stream grpc.ClientStream, lister *lister) (now list, changed bool, size int, err error) {
	var f frame
	if err := stream.RecvMsg(&f); err != nil {
		return list{}, false, 0, err
	}
	defer f.Free()
	now, changed, err = lister.read(f.ReadOnlyData())
	return now, changed, len(f.ReadOnlyData()), err
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
