package cri_test

import (
	"context"
	"net"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
)

// spied is a runtime that keeps the headers of its last status call.
type spied struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
	headers metadata.MD
}

func (*spied) Version(context.Context, *runtimeapi.VersionRequest) (
	*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{}, nil
}

func (*spied) ImageFsInfo(context.Context, *runtimeapi.ImageFsInfoRequest) (
	*runtimeapi.ImageFsInfoResponse, error) {
	return &runtimeapi.ImageFsInfoResponse{}, nil
}

func (s *spied) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (
	*runtimeapi.RuntimeConfigResponse, error) {
	s.headers, _ = metadata.FromIncomingContext(ctx)
	return &runtimeapi.RuntimeConfigResponse{}, nil
}

// TestTraceContext: the runtime gets the context of the trace that its call belongs to (W3C), and
// nothing of it if calls are not traced.
func TestTraceContext(t *testing.T) {
	path := simtest.Socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server, runtime, ended := grpc.NewServer(), &spied{}, make(chan error, 1)
	runtimeapi.RegisterRuntimeServiceServer(server, runtime)
	runtimeapi.RegisterImageServiceServer(server, runtime)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	provider := sdktrace.NewTracerProvider()
	ctx, span := provider.Tracer("test").Start(t.Context(), "action")
	defer span.End()
	for _, on := range []bool{false, true} {
		cfg := cri.Config{RuntimeEndpoint: "unix://" + path}
		if on {
			cfg.Tracer = provider
		}
		client, err := cri.Connect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = client.CgroupDriver(ctx) // it tells none
		parent := strings.Join(runtime.headers.Get("traceparent"), "")
		if has := strings.Contains(parent, span.SpanContext().TraceID().String()); has != on {
			t.Errorf("traced: %t: traceparent is %q", on, parent)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}
