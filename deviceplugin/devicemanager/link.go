package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
)

// link is one registration of one plugin. Its goroutine, run, owns everything between the plugin
// and the table.
type link struct {
	connection
	way      Way
	behavior behavior
	cancel   context.CancelFunc // set by the loop before run begins
	ended    chan struct{}      // closed when run has given the plugin up, not when the link is superseded
	last     lastList
}

// lastList holds what was last reported about lists, to report each thing once.
type lastList struct {
	defects complaint.Complaint[defects]
	devices int
	// refused: the next list was too long to be read.
	refused bool
	// there is the time when the plugin was last there, for a link that stands for a resource of an
	// earlier run.
	there time.Time
}

// newLink prepares the connection; it does not dial.
func newLink(resource, path string, way Way, cfg Config) (*link, error) {
	l := &link{
		connection: connection{resource: resource, socket: path},
		way:        way, ended: make(chan struct{}),
	}
	l.behavior.complaints.Store(&complaints{})
	if err := l.prepare(cfg); err != nil {
		return nil, err
	}
	return l, nil
}

// same reports whether both links register one resource on one socket.
func (l *link) same(o *link) bool { return l.resource == o.resource && l.socket == o.socket }

// event is a link's report to the loop; pluginRefused and resourceRecordoned name a resource
// instead of a link.
type event struct {
	kind     eventKind
	link     *link
	resource string
	options  Options
	list     list
	problem  string
	there    time.Time     // when an absent plugin was last there
	seen     chan struct{} // closed when readers see the outcome; nil: no caller waits
}

// complaints returns those of the link's plugin, nil for an event without a link.
func (e event) complaints() *complaints {
	if e.link == nil {
		return nil
	}
	return e.link.behavior.complaints.Load()
}

type eventKind int

const (
	linkRegistered eventKind = iota
	pluginRefused
	linkEarly
	linkTroubled
	linkListed
	linkExplained
	linkGraceOver
	linkLost
	linkRefused
	linkClosed
	linkFaded
	linkSpent
	linkExpired
	resourceRecordoned
)

// linkSettings holds what all links share.
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
	s.end(ctx, l, there, s.cfg.Graces.ends())
}

// end reports ends of graces that began at since, each when it comes.
func (s linkSettings) end(ctx context.Context, l *link, since time.Time, ends []graceEnd) {
	for _, end := range ends {
		await.For(ctx, end.after-time.Since(since))
		s.report(ctx, event{kind: end.kind, link: l})
	}
}

// fadeLater has the grace of the allocatable devices end while the link tries again; stop cancels it
// and waits for its end.
func (s linkSettings) fadeLater(ctx context.Context, l *link, since time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var fading sync.WaitGroup
	fading.Go(func() { s.end(ctx, l, since, s.cfg.Graces.ends()[:1]) })
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

// serve follows the plugin until it goes away; err says why it did, and last is the end of its last
// list, if there was one. Within the grace after its last list, serve tries a reachable plugin
// again: the plugin believes that it is registered and will not register again. If it ended its
// list itself, it is left alone for Deadlines.Ended first.
func (l *link) serve(ctx context.Context, s linkSettings) (last time.Time, err error) {
	defer l.conn.HangUp()
	unfaded := func() {}
	defer func() { unfaded() }()
	t := trial{until: time.Now().Add(s.cfg.Graces.Capacity)}
	var before error // ended the session before
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

// since explains why a plugin that had a session cannot be reached any more.
func since(session, dial error) error {
	if session == nil {
		return dial
	}
	return fmt.Errorf("%w; now %w", session, dial)
}

// after returns the event for a session that ended with err.
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

// rest waits before the next try. If the connection breaks meanwhile, the plugin counts as lost at
// once, also while an older list of it serves.
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

// trial paces the sessions with a plugin: the pause between them doubles, and the trial ends at
// until unless a session lasts.
type trial struct {
	pause time.Duration
	until time.Time
}

// next returns the pause after a session, at least least, and whether to try again at all.
func (t *trial) next(lasted time.Duration, now time.Time, grace, least time.Duration) (
	pause time.Duration, again bool) {
	if lasted >= lastPause {
		*t = trial{until: now.Add(grace)}
	}
	t.pause = await.Pauses{First: firstPause, Last: lastPause}.Next(t.pause)
	pause = max(t.pause, least)
	return pause, !now.Add(pause).After(t.until)
}

// Bounds of the pause between sessions, which doubles. A session that is shorter than lastPause
// counts as a failure.
const (
	firstPause = time.Second
	lastPause  = 10 * time.Second
)

// tellOf logs a new complaint of the plugin; "": there is none.
func (l *link) tellOf(ctx context.Context, news string) {
	if news != "" {
		klog.FromContext(ctx).Info("Device plugin can do better", "resource", l.resource,
			"socket", l.socket, "explanation", news)
	}
}

// tellEarly warns if the plugin could not be reached right after it registered.
func (l *link) tellEarly(ctx context.Context, s linkSettings) {
	refused := l.conn.DialError()
	if refused == nil {
		return
	}
	why := fmt.Sprintf("it registered before it served its socket (%v); it is "+
		"served here, but the kubelet connects before it answers Register, and fails the call "+
		"after 10s if it cannot: serve first, then register; "+
		"--device-plugin-strict-registration does as the kubelet", refused)
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
