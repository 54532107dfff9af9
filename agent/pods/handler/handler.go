package handler

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxOutput bounds how much of the answer of a command or server is read, in bytes.
const maxOutput = 10 << 10

// Result is the result of a probe.
type Result string

// The results. A Warning is a success that users should know about.
const (
	Success Result = "success"
	Warning Result = "warning"
	Failure Result = "failure"
)

// Outcome is the result of a probe, with the output of the command or server.
type Outcome struct {
	Result Result
	Output string
}

// Runtime runs commands in containers; internalapi.RuntimeService implements it.
type Runtime interface {
	// ExecSync runs a command to its end or up to the timeout; 0: no timeout.
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (
		stdout, stderr []byte, err error)
}

// Config configures the handlers.
type Config struct {
	Runtime Runtime
	// Version is the version in User-Agent, "1.37".
	Version string
	// HTTP2 lets actions ask for HTTP/2 without TLS (H2CContainerProbe), and TLS lets gRPC probes ask for
	// TLS (GRPCContainerProbeTLS); without, both fields of an action are ignored.
	HTTP2, TLS bool
}

// Handlers carries out probes and hooks. It is safe for concurrent use.
type Handlers struct {
	cfg    Config
	dialer *net.Dialer
	plain  http.RoundTripper // HTTP/1.1 without TLS
	http2  http.RoundTripper // HTTP/2 without TLS; no server is asked whether it has it
	secure http.RoundTripper
}

// New returns handlers.
func New(cfg Config) *Handlers {
	dialer := &net.Dialer{Control: lingerBriefly}
	var unencrypted http.Protocols
	unencrypted.SetUnencryptedHTTP2(true)
	return &Handlers{
		cfg: cfg, dialer: dialer, plain: roundTrip{dialer},
		http2: &http.Transport{
			DialContext: dialer.DialContext, Protocols: &unencrypted,
			DisableKeepAlives: true, DisableCompression: true,
		},
		secure: &http.Transport{
			// A probe asks whether the server answers, not who it is.
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
			DialContext:       dialer.DialContext,
			DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: 10 * time.Second,
		},
	}
}

// lingerBriefly makes the kernel drop closed connections soon: many probes a second would leave
// thousands of them in TIME_WAIT.
func lingerBriefly(_, _ string, c syscall.RawConn) error {
	var err error
	controlled := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER,
			&syscall.Linger{Onoff: 1, Linger: 1})
	})
	if controlled != nil {
		return controlled
	}
	return err
}

// Target is the container to ask.
type Target struct {
	Pod       *v1.Pod // for hooks
	Container *v1.Container
	ID        string
	// IP is the pod's address, or the node's for a pod in its network.
	IP string
}

// Probe runs the probe's handler once. An error means that the question could not be asked, so
// nothing is known about the container. The context must end with the probe's timeout, except for a
// command, which the runtime ends.
func (h *Handlers) Probe(ctx context.Context, p *v1.Probe, t Target) (Outcome, error) {
	switch {
	case p.Exec != nil:
		return h.command(ctx, p, t)
	case p.HTTPGet != nil:
		return h.get(ctx, p.HTTPGet, t)
	case p.TCPSocket != nil:
		return h.connect(ctx, p.TCPSocket, t)
	case p.GRPC != nil:
		return h.health(ctx, p, t), nil
	default:
		return Outcome{}, fmt.Errorf("the probe of container %s has none of exec, httpGet, "+
			"tcpSocket, grpc", t.Container.Name)
	}
}

func (h *Handlers) connect(ctx context.Context, a *v1.TCPSocketAction, t Target) (Outcome, error) {
	address, err := t.address(a.Host, a.Port)
	if err != nil {
		return Outcome{}, err
	}
	conn, err := h.dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return Outcome{Failure, err.Error()}, nil
	}
	_ = conn.Close() // the open connection is the answer
	return Outcome{Result: Success}, nil
}

// address returns the handler's address: the pod's unless the handler names a host.
func (t Target) address(host string, port intstr.IntOrString) (string, error) {
	number, err := t.port(port)
	if err != nil {
		return "", err
	}
	if host == "" {
		host = t.IP
	}
	return net.JoinHostPort(host, strconv.Itoa(number)), nil
}

// port returns the number of a port, given as a number, as the container's name for it, or as a
// number in text.
func (t Target) port(p intstr.IntOrString) (int, error) {
	number := p.IntValue()
	if p.Type == intstr.String {
		for _, named := range t.Container.Ports {
			if named.Name == p.StrVal {
				number = int(named.ContainerPort)
				break
			}
		}
	}
	if len(validation.IsValidPortNum(number)) > 0 {
		return 0, fmt.Errorf("port %q: container %s has no port of that name, and it is no number "+
			"of a port", p.String(), t.Container.Name)
	}
	return number, nil
}
