package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
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
	devices []Device
	problem string
}

type eventKind int

const (
	linkRegistered eventKind = iota
	linkTroubled
	linkListed
	linkClosed
	linkExpired
)

// linkSettings are what links share.
type linkSettings struct {
	deadlines Deadlines
	grace     time.Duration
	nodes     topology.NodeSet
	events    chan<- event
}

// run takes the link through its life, until it is superseded or the agent stops.
func (l *link) run(ctx context.Context, s linkSettings) {
	log := klog.FromContext(ctx).WithValues("resource", l.resource, "socket", l.socket)
	if l.socket != "" {
		stop := context.AfterFunc(ctx, func() { l.leave(nil) })
		defer stop()
		err := l.serve(klog.NewContext(l.life, log), s)
		if ctx.Err() != nil {
			return
		}
		if why := context.Cause(l.life); why != nil {
			err = why
		}
		log.Info("Device plugin disconnected", "reason", err.Error())
		s.report(ctx, event{kind: linkClosed, link: l, problem: l.problem(err)})
		close(l.ended)
	}
	grace := time.NewTimer(s.grace)
	defer grace.Stop()
	select {
	case <-ctx.Done():
	case <-grace.C:
		s.report(ctx, event{kind: linkExpired, link: l})
	}
}

func (s linkSettings) report(ctx context.Context, e event) {
	select {
	case s.events <- e:
	case <-ctx.Done():
	}
}

// serve follows the plugin until it goes away; the error says why it did. A plugin that was
// reached and has not come to its first list is tried again for as long as the grace: it takes
// itself for registered, and will not register again.
func (l *link) serve(ctx context.Context, s linkSettings) error {
	defer l.hangUp()
	giveUp := time.Now().Add(s.grace)
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if err := l.dial(ctx, s.deadlines.Dial); err != nil {
			return err
		}
		listed, err := l.session(ctx, s)
		if listed || ctx.Err() != nil || time.Now().Add(pause).After(giveUp) {
			return err
		}
		klog.FromContext(ctx).Info("Device plugin is tried again", "after", pause,
			"reason", err.Error())
		s.report(ctx, event{kind: linkTroubled, link: l, problem: l.problem(err)})
		sleep(ctx, pause)
	}
}

// The time between tries of a plugin that has not sent its first list doubles between these.
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
	options, err := l.askOptions(ctx, s.deadlines.Options)
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
func (l *link) dial(ctx context.Context, deadline time.Duration) error {
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
		err := fmt.Errorf("no answer in %s", deadline)
		if last := l.dialErr.Load(); last != nil {
			err = fmt.Errorf("%w: %w", err, *last)
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

var errNoList = errors.New("no list of devices came in time")

// follow reads ListAndWatch until the stream ends; listed tells whether a list came.
func (l *link) follow(ctx context.Context, s linkSettings, options pluginOptions) (
	listed bool, err error) {
	log := klog.FromContext(ctx)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	first := time.AfterFunc(s.deadlines.FirstList, func() { cancel(errNoList) })
	defer first.Stop()
	stream, err := l.client().ListAndWatch(ctx, &v1beta1.Empty{})
	if err != nil {
		return false, fmt.Errorf("ListAndWatch: %w", err)
	}
	var devices []Device
	var odd oddities
	for ; ; listed = true {
		msg, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return listed, errors.New("it ended its ListAndWatch stream")
		case err != nil && context.Cause(ctx) == errNoList:
			return listed, fmt.Errorf("ListAndWatch: %w (%s)", errNoList, s.deadlines.FirstList)
		case err != nil:
			return listed, fmt.Errorf("ListAndWatch: %w", err)
		}
		first.Stop()
		next, nextOdd := devicesOf(msg.GetDevices(), s.nodes)
		if nextOdd != odd && nextOdd != (oddities{UnknownNode: topology.NoNode}) {
			log.Info("Device list has parts that were left out", "duplicateIDs", nextOdd.Duplicates,
				"emptyIDs", nextOdd.Unnamed, "unknownNUMANode", nextOdd.UnknownNode)
		}
		odd = nextOdd
		if listed && slices.Equal(devices, next) {
			continue
		}
		devices = next
		log.V(2).Info("Device list", "devices", len(devices))
		s.report(ctx, event{kind: linkListed, link: l, options: options, devices: devices})
	}
}
