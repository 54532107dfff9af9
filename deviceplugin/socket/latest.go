package socket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/numalet/numalet/internal/await"
)

// Frame is an undecoded message; Free returns its memory.
type Frame struct {
	mem.Buffer
	// Dropped is how many messages before it were dropped since the last one that was used, and Varied
	// says that not all of them were the same as it.
	Dropped int
	Varied  bool
}

// frameCodec receives frames without decoding them. Requests are encoded as usual.
type frameCodec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c frameCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*Frame)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	f.Buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// Name implements encoding.CodecV2. The empty name keeps the call's usual content type.
func (frameCodec) Name() string { return "" }

// asFrames makes a call receive frames.
func asFrames() grpc.CallOption {
	return grpc.ForceCodecV2(frameCodec{encoding.GetCodecV2("proto")})
}

// Frames begins a stream of frames with a request.
func Frames(ctx context.Context, conn grpc.ClientConnInterface, method string, request any,
	options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method,
		append(options, asFrames())...)
	if err != nil {
		return nil, err
	}
	if err := stream.SendMsg(request); err != nil && !errors.Is(err, io.EOF) {
		return nil, err // with EOF the first receive returns the reason
	}
	return stream, stream.CloseSend()
}

// The paces of Latest. A plugin that says more is slowed down by its stream's flow control.
const (
	usesAtOnce   = 20
	usesASecond  = 2
	readsASecond = 32 << 20 // bytes; a message counts as smallest at least
	smallest     = 32 << 10
	readsAtOnce  = 2 * readsASecond
)

// Latest calls use with the messages of a stream, each of which says anew all that counts, until the
// stream ends or use fails, and returns that error. open begins the stream, which receives frames;
// their memory is freed after use. Of a plugin that sends more than 20 messages at once and then two a
// second, use gets the newest one that often; those before it are dropped.
func Latest(ctx context.Context, open func(context.Context) (grpc.ClientStream, error),
	use func(Frame) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx)
	if err != nil {
		return err
	}
	var end error
	came := make(chan Frame)
	go func() {
		defer close(came)
		end = read(ctx, stream, came)
	}()
	defer func() {
		cancel()
		for frame := range came {
			frame.Free()
		}
	}()
	uses := rate.NewLimiter(usesASecond, usesAtOnce)
	for frame := range came {
		frame = newest(frame, came, uses.Reserve().Delay())
		err := ctx.Err()
		if err == nil {
			err = use(frame)
		}
		frame.Free()
		if err != nil {
			return err
		}
	}
	return end
}

// newest returns the last of the frames that come within the time.
func newest(frame Frame, came <-chan Frame, within time.Duration) Frame {
	if within <= 0 {
		return frame
	}
	over := time.After(within)
	for {
		select {
		case next, more := <-came:
			if !more {
				return frame
			}
			next.Dropped = frame.Dropped + 1
			next.Varied = frame.Varied || !bytes.Equal(frame.ReadOnlyData(), next.ReadOnlyData())
			frame.Free()
			frame = next
		case <-over:
			return frame
		}
	}
}

// read receives frames until the stream ends, and returns its error.
func read(ctx context.Context, stream grpc.ClientStream, came chan<- Frame) error {
	reads := rate.NewLimiter(readsASecond, readsAtOnce)
	for {
		var frame Frame
		if err := stream.RecvMsg(&frame); err != nil {
			return err
		}
		size := min(max(frame.Len(), smallest), readsAtOnce)
		select {
		case came <- frame:
		case <-ctx.Done():
			frame.Free()
		}
		await.For(ctx, reads.ReserveN(time.Now(), size).Delay()) // once ctx is done the stream ends
	}
}
