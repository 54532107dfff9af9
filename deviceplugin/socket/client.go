package socket

import (
	"context"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
)

// Client returns a connection to the server of a socket, made at its first use.
func Client(path string, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+path, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}),
	}, options...)...)
}

// PluginClient returns a connection to a plugin. It dials again and again, since a plugin may make
// its socket a moment before it listens; patience bounds each attempt. Errors of the plugin are cut
// to one line. heard returns the handler that sees the messages; nil: none.
func PluginClient(path string, patience time.Duration, heard func(path string) stats.Handler,
	options ...grpc.DialOption) (*grpc.ClientConn, error) {
	options = append(options, grpc.WithUnaryInterceptor(shortErrors),
		grpc.WithStreamInterceptor(shortStreamErrors),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: time.Second,
			},
			MinConnectTimeout: patience,
		}))
	if heard != nil {
		options = append(options, grpc.WithStatsHandler(heard(path)))
	}
	return Client(path, options...)
}

// Ready waits until the connection is made; false: ctx was done first.
func Ready(ctx context.Context, conn *grpc.ClientConn) bool {
	for state := conn.GetState(); state != connectivity.Ready; state = conn.GetState() {
		conn.Connect()
		if !conn.WaitForStateChange(ctx, state) {
			return false
		}
	}
	return true
}
