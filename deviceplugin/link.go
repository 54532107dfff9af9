package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/topology"
)

// maxListBytes bounds one message of ListAndWatch: 64 MiB is a million devices. gRPC's own 4 MiB
// is reached by plugins that share each device a thousandfold.
const maxListBytes = 64 << 20

// link is one registration of one plugin. Its goroutine, run, owns everything that happens
// between the plugin and the table; calls use the connection beside it.
type link struct {
	resource string
	socket   string // path; empty for a resource that is only known from before
	conn     *grpc.ClientConn
	dialErr  atomic.Pointer[error] // of the last attempt to connect
	callers  callers

	cancel context.CancelFunc // set by the loop before run begins
	life   context.Context    // of the connection; leave ends it and says why
	leave  context.CancelCauseFunc
	ended  chan struct{} // closed when the plugin is lost, not when it is superseded
	told   defects       // of the last list
}

// newLink prepares the connection; nothing is dialled yet.
func newLink(resource, socket string, deadlines Deadlines) (*link, error) {
	l := &link{resource: resource, socket: socket, ended: make(chan struct{})}
	l.life, l.leave = context.WithCancelCause(context.Background())
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
			if err != nil {
				l.dialErr.Store(&err)
			}
			return conn, err
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: deadlines.Dial,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxListBytes)),
	)
	if err != nil {
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}
	l.conn = conn
	return l, nil
}

// same tells whether both are registrations of one socket for one resource.
func (l *link) same(o *link) bool { return l.resource == o.resource && l.socket == o.socket }

func (l *link) name() string { return filepath.Base(l.socket) }

func (l *link) client() v1beta1.DevicePluginClient { return v1beta1.NewDevicePluginClient(l.conn) }

// event is what a link reports to the loop.
type event struct {
	kind    eventKind
	link    *link
	options pluginOptions
	list    list
	problem string
}

type eventKind int

const (
	linkRegistered eventKind = iota
	linkTroubled
	linkListed
	linkLost
	linkClosed
	linkFaded
	linkExpired
)

// linkSettings are what links share.
type linkSettings struct {
	deadlines Deadlines
	graces    Graces
	nodes     topology.NodeSet
	events    chan<- event
	metrics   *instruments
}

// run takes the link through its life, until it is superseded or the agent stops.
func (l *link) run(ctx context.Context, s linkSettings) {
	log := klog.FromContext(ctx).WithValues("resource", l.resource, "socket", l.socket)
	since := time.Now() // when the plugin was last there
	if l.socket != "" {
		stop := context.AfterFunc(ctx, func() { l.leave(nil) })
		defer stop()
		last, err := l.serve(klog.NewContext(l.life, log), s)
		if ctx.Err() != nil {
			return
		}
		if why := context.Cause(l.life); why != nil {
			err = why
		}
		if !last.IsZero() {
			since = last
		}
		log.Info("Device plugin disconnected", "reason", err.Error())
		s.report(ctx, event{kind: linkClosed, link: l, problem: l.problem(err)})
		close(l.ended)
	}
	sleep(ctx, min(s.graces.Allocatable, s.graces.Capacity)-time.Since(since))
	s.report(ctx, event{kind: linkFaded, link: l})
	sleep(ctx, s.graces.Capacity-time.Since(since))
	s.report(ctx, event{kind: linkExpired, link: l})
}

func (s linkSettings) report(ctx context.Context, e event) {
	if ctx.Err() != nil {
		return
	}
	select {
	case s.events <- e:
	case <-ctx.Done():
	}
}

// serve follows the plugin until it goes away; the error says why it did, and last is the end of
// its last list, if there was one. A plugin that can be reached is tried again for as long as the
// grace after its last list: it takes itself for registered, and will not register again.
func (l *link) serve(ctx context.Context, s linkSettings) (last time.Time, err error) {
	defer l.hangUp()
	t := trial{until: time.Now().Add(s.graces.Capacity)}
	for {
		if err := l.dial(ctx, s); err != nil {
			return last, err
		}
		began := time.Now()
		listed, err := l.session(ctx, s)
		now := time.Now()
		if listed {
			last = now
		}
		pause, again := t.next(now.Sub(began), now, s.graces.Capacity)
		if ctx.Err() != nil || !again {
			return last, err
		}
		klog.FromContext(ctx).Info("Device plugin is tried again", "after", pause,
			"reason", err.Error())
		kind := linkTroubled
		if listed {
			kind = linkLost
		}
		s.report(ctx, event{kind: kind, link: l, problem: l.problem(err)})
		sleep(ctx, pause)
	}
}

// trial paces the sessions with a plugin: the time between them doubles, and they end unless one
// of them lasts.
type trial struct {
	pause time.Duration
	until time.Time
}

// next is what to do after a session: how long to wait, and whether to try again at all.
func (t *trial) next(lasted time.Duration, now time.Time, grace time.Duration) (
	pause time.Duration, again bool) {
	if lasted >= lastPause {
		*t = trial{until: now.Add(grace)}
	}
	t.pause = min(max(2*t.pause, firstPause), lastPause)
	return t.pause, !now.Add(t.pause).After(t.until)
}

// The time between tries of a plugin whose list has ended or has not come doubles between these. A
// session that is shorter than the longest of them counts as a failure.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
)

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// problem is an error of the plugin in words for people.
func (l *link) problem(err error) string { return "plugin on " + l.name() + ": " + err.Error() }

// session asks for the options and follows the list; listed tells whether a list came.
func (l *link) session(ctx context.Context, s linkSettings) (listed bool, err error) {
	began := time.Now()
	options, err := l.askOptions(ctx, s.deadlines.Options)
	s.metrics.called(l.resource, rpcOptions, time.Since(began), err)
	if err != nil {
		return false, err
	}
	return l.follow(ctx, s, options)
}

// hangUp closes the connection, or leaves that to the last call under way.
func (l *link) hangUp() {
	if l.callers.end() {
		l.close()
	}
}

func (l *link) close() {
	// The only error is that of closing twice.
	_ = l.conn.Close()
}

// dial connects, with retries until the deadline.
func (l *link) dial(ctx context.Context, s linkSettings) error {
	began := time.Now()
	err := l.connect(ctx, s.deadlines.Dial)
	if context.Cause(ctx) == nil {
		s.metrics.called(l.resource, rpcDial, time.Since(began), err)
	}
	return err
}

func (l *link) connect(ctx context.Context, deadline time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	for {
		state := l.conn.GetState()
		if state == connectivity.Ready {
			return nil
		}
		l.conn.Connect()
		if l.conn.WaitForStateChange(ctx, state) {
			continue
		}
		err := lateError(fmt.Sprintf("no answer in %s", deadline))
		if last := l.dialErr.Load(); last != nil {
			return fmt.Errorf("failed to dial device plugin: %w: %w", err, *last)
		}
		return fmt.Errorf("failed to dial device plugin: %w", err)
	}
}

func (l *link) askOptions(ctx context.Context, deadline time.Duration) (pluginOptions, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	resp, err := l.client().GetDevicePluginOptions(ctx, &v1beta1.Empty{})
	if status.Code(err) == codes.Unimplemented {
		return pluginOptions{}, nil // a plugin of the API's first days
	}
	if err != nil {
		return pluginOptions{}, fmt.Errorf("GetDevicePluginOptions: %w", err)
	}
	return pluginOptions{
		Preferred: resp.GetGetPreferredAllocationAvailable(),
		PreStart:  resp.GetPreStartRequired(),
	}, nil
}

// lateError says that a plugin let a deadline pass that is not that of a call.
type lateError string

func (e lateError) Error() string { return string(e) }

// Is implements what errors.Is looks for.
func (e lateError) Is(target error) bool { return target == context.DeadlineExceeded }

// follow reads ListAndWatch until the stream ends; listed tells whether a list came.
func (l *link) follow(ctx context.Context, s linkSettings, options pluginOptions) (
	listed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := lateError(fmt.Sprintf("no list of devices came in time (%s)", s.deadlines.FirstList))
	first := time.AfterFunc(s.deadlines.FirstList, func() { cancel(late) })
	defer first.Stop()
	began := time.Now()
	lister := newLister(s.nodes)
	stream, err := l.listAndWatch(ctx)
	for err == nil {
		var now list
		var changed bool
		if now, changed, err = receive(stream, lister); err != nil {
			break
		}
		if !listed {
			first.Stop()
			s.metrics.called(l.resource, rpcList, time.Since(began), nil)
		}
		if changed || !listed {
			l.tell(ctx, now)
			s.report(ctx, event{kind: linkListed, link: l, options: options, list: now})
		}
		listed = true
	}
	switch {
	case context.Cause(ctx) == late && !listed:
		err = fmt.Errorf("ListAndWatch: %w", late)
	case errors.Is(err, io.EOF):
		err = errors.New("it ended its ListAndWatch stream; a plugin has to keep it open and send " +
			"the list again when a device changes")
	default:
		err = fmt.Errorf("ListAndWatch: %w", err)
	}
	if !listed && ctx.Err() == nil || errors.Is(err, context.DeadlineExceeded) {
		s.metrics.called(l.resource, rpcList, time.Since(began), err)
	}
	return listed, err
}

// listAndWatch begins the stream, whose messages come undecoded.
func (l *link) listAndWatch(ctx context.Context) (grpc.ClientStream, error) {
	stream, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
		v1beta1.DevicePlugin_ListAndWatch_FullMethodName, asFrames())
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(&v1beta1.Empty{}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // with EOF the first message brings the reason
	}
	return stream, stream.CloseSend()
}

// receive reads the next message.
func receive(stream grpc.ClientStream, lister *lister) (now list, changed bool, err error) {
	var f frame
	if err := stream.RecvMsg(&f); err != nil {
		return list{}, false, err
	}
	defer f.Free()
	return lister.read(f.ReadOnlyData())
}

// tell logs what is wrong with a list, once for as long as it stays so.
func (l *link) tell(ctx context.Context, now list) {
	log := klog.FromContext(ctx)
	if now.defects != l.told && now.defects != (defects{}) {
		log.Info("Device plugin sends a list with errors", "devices", len(now.devices),
			"errors", now.defects.String())
	}
	l.told = now.defects
	log.V(2).Info("Device list", "devices", len(now.devices), "healthy", now.healthy)
}
