// Package nodesocket serves gRPC to the processes of the node, on a unix socket for each API, so that
// no client can keep the agent busy or hold what others need.
package nodesocket

import (
	"context"
	"fmt"
	"net"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/internal/bounded"
	"github.com/numalet/numalet/internal/files"
)

// The kubelet's limit on calls, so that a client in a loop cannot keep the agent busy.
const (
	maxQPS   = 100
	maxBurst = 10
)

// maxStreams bounds the calls of one connection that are under way: a watch that was ended stays
// one until its client has read that.
const maxStreams = 250

// A client that does not answer pings is disconnected.
const (
	pingAfter   = time.Minute
	pingTimeout = 20 * time.Second
)

// Socket is the socket of an API.
type Socket struct {
	net.Listener
	api     string // its name in errors
	limiter *rate.Limiter
}

// Listen listens for an API; no call is answered before Serve. A socket that is there is replaced.
func Listen(api, path string) (*Socket, error) {
	if err := files.Remove(path); err != nil {
		return nil, fmt.Errorf("replace the socket of %s: %w", api, err)
	}
	l, err := socket.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("serve %s: %w; a shorter --root-dir may help", api, err)
	}
	return &Socket{l, api, rate.NewLimiter(maxQPS, maxBurst)}, nil
}

// Serve serves what register registers until ctx ends, then removes the socket. Streams are not
// limited in number but by LimitStreams.
func (s *Socket) Serve(ctx context.Context, register func(grpc.ServiceRegistrar),
	more ...grpc.ServerOption) error {
	server := grpc.NewServer(append(more, grpc.WaitForHandlers(true),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			handler grpc.UnaryHandler) (any, error) {
			if err := s.limit(); err != nil {
				return nil, err
			}
			return handler(ctx, req)
		}))...)
	register(server)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	defer server.Stop() // if it was not ctx that ended
	err := server.Serve(bounded.Listener(s.Listener, bounded.Connections()))
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %s on %s: %w", s.api, s.Addr(), err)
	}
	return nil
}

// LimitStreams has streams count as calls.
func (s *Socket) LimitStreams() grpc.ServerOption {
	return grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
		handler grpc.StreamHandler) error {
		if err := s.limit(); err != nil {
			return err
		}
		return handler(srv, stream)
	})
}

func (s *Socket) limit() error {
	if !s.limiter.Allow() {
		return status.Error(codes.ResourceExhausted, "rejected by rate limit")
	}
	return nil
}
