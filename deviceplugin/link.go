package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"k8s.io/klog/v2"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/topology/await"
)

// maxAnswerBytes bounds the answers of a plugin. Lists of devices have a bound of their own.
const maxAnswerBytes = 64 << 20

// link is one registration of one plugin. Its goroutine, run, owns everything that happens
// between the plugin and the table; calls use the connection beside it.
type link struct {
	resource string
	socket   string // path; empty for a resource that is only known from before
	way      Way
	conduct  conduct
	conn     *grpc.ClientConn
	dialErr  atomic.Pointer[error] // of the last attempt to connect
	callers  callers

	cancel context.CancelFunc // set by the loop before run begins
	life   context.Context    // of the connection; leave ends it and says why
	leave  context.CancelCauseFunc
	ended  chan struct{} // closed when the plugin is lost, not when it is superseded
	last   lastList
}

// lastList is what is remembered of the last list, to tell each thing once.
type lastList struct {
	defects defects
	devices int
	// refused: the list after it was too long to be read.
	refused bool
	// there is when the plugin was last there, of a link that stands for a resource from before.
	there time.Time
}

// newLink prepares the connection; nothing is dialled yet.
func newLink(resource, path string, way Way, cfg Config) (*link, error) {
	l := &link{resource: resource, socket: path, way: way, ended: make(chan struct{})}
	l.conduct.manners.Store(&manners{})
	l.life, l.leave = context.WithCancelCause(context.Background())
	conn, err := socket.PluginClient(path, cfg.Deadlines.Dial, cfg.Stats,
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
			if err != nil {
				l.dialErr.Store(&err)
			}
			return conn, err
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
	if err != nil {
		return nil, fmt.Errorf("failed to dial device plugin: %w", err)
	}
	l.conn = conn
	return l, nil
}

// same reports whether both are registrations of one socket for one resource.
func (l *link) same(o *link) bool { return l.resource == o.resource && l.socket == o.socket }

func (l *link) name() string { return filepath.Base(l.socket) }

func (l *link) client() v1beta1.DevicePluginClient { return v1beta1.NewDevicePluginClient(l.conn) }

// event is what a link reports to the loop; pluginRefused and resourceRecordoned are of a resource,
// without a link.
type event struct {
	kind     eventKind
	link     *link
	resource string
	options  Options
	list     list
	problem  string
	there    time.Time     // when a plugin that is not there any more was last there
	seen     chan struct{} // closed when readers see what became of it; nil: nobody waits for that
}

// manners are those of the link's plugin; nil of an event without one.
func (e event) manners() *manners {
	if e.link == nil {
		return nil
	}
	return e.link.conduct.manners.Load()
}

type eventKind int

const (
	linkRegistered eventKind = iota
	pluginRefused
	linkEarly
	linkTroubled
	linkListed
	linkExplained
	linkSettled
	linkLost
	linkRefused
	linkClosed
	linkFaded
	linkSpent
	linkExpired
	resourceRecordoned
)

// linkSettings are what links share.
type linkSettings struct {
	cfg     Config
	events  chan<- event
	metrics *instruments
}

// run takes the link through its life, until it is superseded or the agent stops.
func (l *link) run(ctx context.Context, s linkSettings) {
	log := klog.FromContext(ctx).WithValues("resource", l.resource, "socket", l.socket)
	there := l.last.there
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
		if there = last; there.IsZero() {
			there = time.Now()
		}
		log.Info("Device plugin disconnected", "reason", err.Error())
		s.report(ctx, event{kind: linkClosed, link: l, problem: l.problem(err), there: there})
		close(l.ended)
	}
	s.fade(ctx, l, there)
	await.For(ctx, s.cfg.Graces.Capacity-time.Since(there))
	s.report(ctx, event{kind: linkSpent, link: l})
	await.For(ctx, s.cfg.Graces.Capacity+s.cfg.Graces.Resource-time.Since(there))
	s.report(ctx, event{kind: linkExpired, link: l})
}

// fade reports that the grace of the allocatable devices is over, which began at a time.
func (s linkSettings) fade(ctx context.Context, l *link, since time.Time) {
	await.For(ctx, min(s.cfg.Graces.Allocatable, s.cfg.Graces.Capacity)-time.Since(since))
	s.report(ctx, event{kind: linkFaded, link: l})
}

// fadeLater is fade beside a link that tries again; stop ends it, and waits for that.
func (s linkSettings) fadeLater(ctx context.Context, l *link, since time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var fading sync.WaitGroup
	fading.Go(func() { s.fade(ctx, l, since) })
	return func() {
		cancel()
		fading.Wait()
	}
}

func (s linkSettings) report(ctx context.Context, e event) {
	if ctx.Err() != nil {
		return
	}
	await.Send(ctx, s.events, e)
}

// serve follows the plugin until it goes away; the error says why it did, and last is the end of
// its last list, if there was one. A plugin that can be reached is tried again for as long as the
// grace after its last list: it takes itself for registered, and will not register again. One that
// ended its list itself is left alone for some time before.
func (l *link) serve(ctx context.Context, s linkSettings) (last time.Time, err error) {
	defer l.hangUp()
	unfaded := func() {}
	defer func() { unfaded() }()
	t := trial{until: time.Now().Add(s.cfg.Graces.Capacity)}
	var before error // that ended the session before
	for first := true; ; first = false {
		if err := l.dial(ctx, s); err != nil {
			return last, since(before, err)
		}
		if first {
			l.tellEarly(ctx, s)
		}
		began := time.Now()
		listed, err := l.session(ctx, s)
		now := time.Now()
		if listed || isTooLong(err) {
			last = now
		}
		least := time.Duration(0)
		if _, ended := errors.AsType[*endedError](err); ended {
			least = s.cfg.Deadlines.Ended
		}
		pause, again := t.next(now.Sub(began), now, s.cfg.Graces.Capacity, least)
		if ctx.Err() != nil || !again {
			return last, err
		}
		klog.FromContext(ctx).Info("Device plugin is tried again", "after", pause,
			"reason", err.Error())
		unfaded()
		s.report(ctx, l.after(ctx, s, listed, last, err))
		unfaded = s.fadeLater(ctx, l, last)
		before = err
		l.rest(ctx, s, pause)
	}
}

// since is why a plugin that had a session cannot be reached any more.
func since(session, dial error) error {
	if session == nil {
		return dial
	}
	return fmt.Errorf("%w; now %w", session, dial)
}

// after is what a session has come to that ended with an error.
func (l *link) after(ctx context.Context, s linkSettings, listed bool, last time.Time,
	err error) event {
	e := event{kind: linkTroubled, link: l, problem: l.problem(err), there: last}
	switch {
	case isTooLong(err):
		e.kind, e.problem = linkRefused, l.refuse(ctx, s)
	case listed:
		e.kind = linkLost
	}
	return e
}

// rest waits before the next try. A plugin that goes away meanwhile is lost at once, also when it
// serves with a list from before.
func (l *link) rest(ctx context.Context, s linkSettings, pause time.Duration) {
	waiting, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	if l.conn.WaitForStateChange(waiting, connectivity.Ready) {
		s.report(ctx, event{
			kind: linkLost, link: l, problem: l.problem(errors.New("its connection was lost")),
			there: time.Now(),
		})
		await.For(waiting, lastPause)
	}
}

// trial paces the sessions with a plugin: the time between them doubles, and they end unless one
// of them lasts.
type trial struct {
	pause time.Duration
	until time.Time
}

// next is what to do after a session: how long to wait, least or more, and whether to try again at
// all.
func (t *trial) next(lasted time.Duration, now time.Time, grace, least time.Duration) (
	pause time.Duration, again bool) {
	if lasted >= lastPause {
		*t = trial{until: now.Add(grace)}
	}
	t.pause = min(max(2*t.pause, firstPause), lastPause)
	pause = max(t.pause, least)
	return pause, !now.Add(pause).After(t.until)
}

// The time between tries of a plugin whose list has ended or has not come doubles between these. A
// session that is shorter than the longest of them counts as a failure.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
)

// called counts a call that has come back.
func (l *link) called(metrics *instruments, rpc string, took time.Duration, err error) {
	metrics.called(l.resource, rpc, took, err)
	l.conduct.tally.add(rpc, err)
}

// tellOf logs a habit of the plugin that is news.
func (l *link) tellOf(ctx context.Context, text string, news bool) {
	if news {
		klog.FromContext(ctx).Info("Device plugin can do better", "resource", l.resource,
			"socket", l.socket, "explanation", text)
	}
}

// problem is an error of the plugin in words for people.
func (l *link) problem(err error) string { return "plugin on " + l.name() + ": " + err.Error() }

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

// tellEarly warns if the plugin could not be reached at once when it had registered.
func (l *link) tellEarly(ctx context.Context, s linkSettings) {
	refused := l.dialErr.Load()
	if refused == nil {
		return
	}
	why := fmt.Sprintf("it registered before it served its socket (%v); it is "+
		"served here, but the kubelet connects before it answers Register, and fails the call "+
		"after 10s if it cannot: serve first, then register; "+
		"--device-plugin-strict-registration does as the kubelet", *refused)
	klog.FromContext(ctx).Info("Device plugin registered before it served", "explanation", why)
	s.report(ctx, event{kind: linkEarly, link: l, problem: why})
}

// dial connects, with retries until the deadline.
func (l *link) dial(ctx context.Context, s linkSettings) error {
	began := time.Now()
	err := l.connect(ctx, s.cfg.Deadlines.Dial)
	if context.Cause(ctx) == nil {
		l.called(s.metrics, rpcDial, time.Since(began), err)
	}
	return err
}

// reachPeriod is how long a plugin that has its socket, and does not accept yet, is waited for
// before its registration is answered.
const reachPeriod = time.Second

// reach connects to a plugin that serves already. It reports false if it does not.
func (l *link) reach(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reachPeriod)
	defer cancel()
	for {
		l.conn.Connect()
		switch state := l.conn.GetState(); {
		case state == connectivity.Ready:
			return true
		case state == connectivity.TransientFailure || !l.conn.WaitForStateChange(ctx, state):
			return false
		}
	}
}

func (l *link) connect(ctx context.Context, deadline time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if socket.Ready(ctx, l.conn) {
		return nil
	}
	err := lateError(fmt.Sprintf("no answer in %s", deadline))
	if last := l.dialErr.Load(); last != nil {
		return fmt.Errorf("failed to dial device plugin: %w: %w", err, *last)
	}
	return fmt.Errorf("failed to dial device plugin: %w", err)
}
