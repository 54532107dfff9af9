package devicemanager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
)

// maxAnswerBytes bounds the answers of a plugin. Lists of devices have their own bound.
const maxAnswerBytes = 64 << 20

// connection has what calls to one plugin use, concurrently.
type connection struct {
	resource string
	socket   string       // path; empty for a resource that is only known from before
	conn     *socket.Conn // each call is counted in it
	tally    tally
	life     context.Context // leave ends it with a reason
	leave    context.CancelCauseFunc
}

// prepare makes the connection; it does not dial.
func (c *connection) prepare(cfg Config) (err error) {
	c.life, c.leave = context.WithCancelCause(context.Background())
	c.conn, err = socket.PluginClient(c.socket, cfg.Deadlines.Dial, cfg.Stats,
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
	if err != nil {
		return fmt.Errorf("failed to dial device plugin: %w", err)
	}
	return nil
}

func (c *connection) name() string { return filepath.Base(c.socket) }

func (c *connection) client() v1beta1.DevicePluginClient {
	return v1beta1.NewDevicePluginClient(c.conn)
}

// called counts a finished call.
func (c *connection) called(metrics *instruments, rpc string, took time.Duration, err error) {
	metrics.called(c.resource, rpc, took, err)
	c.tally.add(rpc, err)
}

// problem words an error of the plugin for people.
func (c *connection) problem(err error) string { return "plugin on " + c.name() + ": " + err.Error() }

// reachPeriod bounds the wait before a registration is answered for a plugin that has its socket
// but does not accept yet.
const reachPeriod = time.Second

// reach connects to a plugin that already serves; it returns false if the plugin does not.
func (c *connection) reach(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, reachPeriod)
	defer cancel()
	for {
		c.conn.Connect()
		switch state := c.conn.GetState(); {
		case state == connectivity.Ready:
			return true
		case state == connectivity.TransientFailure || !c.conn.WaitForStateChange(ctx, state):
			return false
		}
	}
}

func (c *connection) connect(ctx context.Context, deadline time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	if c.conn.Ready(ctx) {
		return nil
	}
	err := lateError(fmt.Sprintf("no answer in %s", deadline))
	if last := c.conn.DialError(); last != nil {
		return fmt.Errorf("failed to dial device plugin: %w: %w", err, last)
	}
	return fmt.Errorf("failed to dial device plugin: %w", err)
}

func (c *connection) askOptions(ctx context.Context, m *instruments, deadline time.Duration) (
	options Options, err error) {
	began := time.Now()
	defer func() { c.called(m, rpcOptions, time.Since(began), err) }()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	resp, err := c.client().GetDevicePluginOptions(ctx, &v1beta1.Empty{})
	if status.Code(err) == codes.Unimplemented {
		return Options{}, nil // an early plugin of this API
	}
	if status.Code(err) == codes.DeadlineExceeded { // whichever side noticed first
		err = lateError(fmt.Sprintf("it was not answered in time (%s)", deadline))
	}
	if err != nil {
		return Options{}, err
	}
	return Options{
		Preferred: resp.GetGetPreferredAllocationAvailable(),
		PreStart:  resp.GetPreStartRequired(),
	}, nil
}

// listAndWatch begins the stream. Its messages come undecoded and have at most so many bytes.
func (c *connection) listAndWatch(ctx context.Context, most int) (grpc.ClientStream, error) {
	return socket.Frames(ctx, c.conn, v1beta1.DevicePlugin_ListAndWatch_FullMethodName,
		&v1beta1.Empty{}, grpc.MaxCallRecvMsgSize(most))
}

// ends reports whether the plugin itself ended the stream. A broken connection ends it with the
// code Unavailable, and the connection's state follows a moment later.
func (c *connection) ends(ctx context.Context, err error) bool {
	switch {
	case errors.Is(err, io.EOF):
		return true
	case isTooLong(err):
		return false
	case status.Code(err) != codes.Unavailable:
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, breakPeriod)
	defer cancel()
	return !c.conn.WaitForStateChange(ctx, connectivity.Ready)
}

// breakPeriod is how long the state of a connection may lag behind its broken stream.
const breakPeriod = 200 * time.Millisecond
