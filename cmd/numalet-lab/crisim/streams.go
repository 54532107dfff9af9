package crisim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streams serves exec, attach and port forwarding to clients, on a loopback port.
type streams struct {
	listener net.Listener
	server   streaming.Server
}

func newStreams(s *store) (streams, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return streams{}, fmt.Errorf("listen for streams: %w", err)
	}
	config := streaming.DefaultConfig
	config.Addr = l.Addr().String()
	config.BaseURL = &url.URL{Scheme: "http", Host: config.Addr, Path: "/"}
	server, err := streaming.NewServer(config, &streamer{s})
	if err != nil {
		return streams{}, errors.Join(err, l.Close())
	}
	return streams{l, server}, nil
}

func (s streams) http() *http.Server {
	return &http.Server{Handler: s.server, ReadHeaderTimeout: 10 * time.Second}
}

// Exec returns the URL of the command's streams. The command starts when a client connects.
func (r *runtimeService) Exec(_ context.Context, req *runtimeapi.ExecRequest) (
	*runtimeapi.ExecResponse, error) {
	if err := checkRuns(r.store, req.GetContainerId()); err != nil {
		return nil, err
	}
	return r.streams.server.GetExec(req)
}

// Attach returns the URL of the container's streams.
func (r *runtimeService) Attach(_ context.Context, req *runtimeapi.AttachRequest) (
	*runtimeapi.AttachResponse, error) {
	if err := checkRuns(r.store, req.GetContainerId()); err != nil {
		return nil, err
	}
	return r.streams.server.GetAttach(req)
}

// PortForward returns the URL for connections to the sandbox.
func (r *runtimeService) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (
	*runtimeapi.PortForwardResponse, error) {
	if _, err := r.store.sandboxByID(req.GetPodSandboxId()); err != nil {
		return nil, err
	}
	return r.streams.server.GetPortForward(req)
}

// ExecSync runs a command and waits for its end.
func (r *runtimeService) ExecSync(ctx context.Context, req *runtimeapi.ExecSyncRequest) (
	*runtimeapi.ExecSyncResponse, error) {
	if err := checkRuns(r.store, req.GetContainerId()); err != nil {
		return nil, err
	}
	c, err := r.store.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if limit := req.GetTimeout(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(limit)*time.Second)
		defer cancel()
	}
	var out, errs bytes.Buffer
	p := process{ctx: ctx, inside: insideOf(c), stdin: strings.NewReader(""), stdout: &out, stderr: &errs}
	code := p.run(req.GetCmd())
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &runtimeapi.ExecSyncResponse{
		Stdout: out.Bytes(), Stderr: errs.Bytes(), ExitCode: int32(code),
	}, nil
}

// checkRuns returns an error unless the container runs.
func checkRuns(s *store, id string) error {
	c, err := s.containerByID(id)
	if err != nil {
		return err
	}
	if state, running := s.stateOf(c); !running {
		return status.Errorf(codes.Unknown, "container is in %s state", state)
	}
	return nil
}

// streamer handles the streams of clients.
type streamer struct{ store *store }

// Exec runs one of the commands that process knows.
func (s *streamer) Exec(ctx context.Context, id string, cmd []string, in io.Reader,
	out, errs io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	c, err := s.store.containerByID(id)
	if err != nil {
		return err
	}
	p := process{ctx: ctx, inside: insideOf(c), stdin: in, stdout: out, stderr: errs, resize: resize}
	if tty {
		p.stderr = out
	}
	if len(cmd) == 1 && isShell(cmd[0]) && in != nil {
		if code := p.shell(c.config.GetMetadata().GetName(), tty); code != 0 {
			return exited(code)
		}
		return nil
	}
	if code := p.run(cmd); code != 0 {
		return exited(code)
	}
	return nil
}

func exited(code int) error {
	return &utilexec.CodeExitError{
		Err: fmt.Errorf("command terminated with exit code %d", code), Code: code,
	}
}

// Attach echoes its input until the client or the container ends.
func (s *streamer) Attach(_ context.Context, id string, in io.Reader, out, _ io.WriteCloser,
	_ bool, _ <-chan remotecommand.TerminalSize) error {
	c, err := s.store.containerByID(id)
	if err != nil {
		return err
	}
	echoed := make(chan struct{})
	go func() { // ends with the client's connection, which this function's return closes
		defer close(echoed)
		if in != nil && out != nil {
			_, _ = io.Copy(out, in)
		}
	}()
	if in == nil {
		<-c.done
		return nil
	}
	select {
	case <-c.done:
	case <-echoed:
	}
	return nil
}

// PortForward echoes its input, after a line with the port.
func (s *streamer) PortForward(_ context.Context, _ string, port int32,
	stream io.ReadWriteCloser) error {
	defer stream.Close()
	if _, err := fmt.Fprintf(stream, "port %d\n", port); err != nil {
		return err
	}
	_, err := io.Copy(stream, stream)
	return err
}
