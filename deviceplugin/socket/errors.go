package socket

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/oneline"
)

// shortErrors is an interceptor that cuts errors of the other side to one line. The log at V(4) has
// the whole.
func shortErrors(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return short(ctx, method, call(ctx, method, req, reply, conn, opts...))
}

// shortStreamErrors does the same for messages received on streams.
func shortStreamErrors(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn,
	method string, begin grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := begin(ctx, desc, conn, method, opts...)
	if err != nil {
		return nil, short(ctx, method, err)
	}
	return shortStream{stream, method}, nil
}

type shortStream struct {
	grpc.ClientStream
	method string
}

// RecvMsg implements grpc.ClientStream.
func (s shortStream) RecvMsg(m any) error {
	return short(s.Context(), s.method, s.ClientStream.RecvMsg(m))
}

func short(ctx context.Context, method string, err error) error {
	s, ok := status.FromError(err)
	if err == nil || !ok {
		return err // io.EOF is no text of the other side
	}
	line := oneline.Of(s.Message())
	if line == s.Message() {
		return err
	}
	klog.FromContext(ctx).V(4).Info("What the other side says in full", "method", method,
		"message", s.Message())
	return status.Error(s.Code(), line)
}
