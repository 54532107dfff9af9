package handler

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// credentials returns those that a probe connects with: with TLS it does not ask who the server is.
func (h *Handlers) credentials(a *v1.GRPCAction) credentials.TransportCredentials {
	if h.cfg.TLS && ptr.Deref(a.Mode, v1.GRPCProbeModePlaintext) == v1.GRPCProbeModeTLS {
		return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	}
	return insecure.NewCredentials()
}

// health asks a server for the health of a service (gRPC Health Checking Protocol). Everything but
// an answer is a failure.
func (h *Handlers) health(ctx context.Context, p *v1.Probe, t Target) Outcome {
	a, within := p.GRPC, time.Duration(p.TimeoutSeconds)*time.Second
	address, err := t.address("", intstr.FromInt32(a.Port))
	if err != nil {
		return Outcome{Failure, err.Error()}
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithUserAgent("kube-probe/"+h.cfg.Version),
		grpc.WithTransportCredentials(h.credentials(a)),
		grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return h.dialer.DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		return Outcome{Failure,
			fmt.Sprintf("error: failed to connect service at %q: %v", address, err)}
	}
	defer conn.Close()
	conn.Connect()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
		if !conn.WaitForStateChange(ctx, s) {
			return Outcome{Failure, fmt.Sprintf("timeout: failed to connect service %q "+
				"within %v: %v", address, within, ctx.Err())}
		}
	}
	answer, err := healthv1.NewHealthClient(conn).Check(ctx,
		&healthv1.HealthCheckRequest{Service: ptr.Deref(a.Service, "")})
	switch code := status.Code(err); {
	case code == codes.Unimplemented:
		return Outcome{Failure, "error: this server does not implement the grpc health protocol " +
			"(grpc.health.v1.Health): " + status.Convert(err).Message()}
	case code == codes.DeadlineExceeded:
		return Outcome{Failure,
			fmt.Sprintf("timeout: health rpc did not complete within %v", within)}
	case err != nil:
		return Outcome{Failure, fmt.Sprintf("error: health rpc probe failed: %v", err)}
	case answer.GetStatus() != healthv1.HealthCheckResponse_SERVING:
		return Outcome{Failure,
			fmt.Sprintf("service unhealthy (responded with %q)", answer.GetStatus())}
	default:
		return Outcome{Success, "service healthy"}
	}
}
