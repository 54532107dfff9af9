package check

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/internal/oneline"
)

// The calls by name.
const (
	notifyCall    = "NotifyRegistrationStatus"
	optionsCall   = "GetDevicePluginOptions"
	listCall      = "ListAndWatch"
	preferredCall = "GetPreferredAllocation"
	allocateCall  = "Allocate"
)

// Line is one line of the transcript.
type Line struct {
	// At is the time since the checks began.
	At time.Duration
	// What names the sender, the receiver and the message, or the check that begins.
	What string
}

// WriteTranscript writes lines as text.
func WriteTranscript(w io.Writer, lines []Line) error {
	for _, l := range lines {
		if _, err := fmt.Fprintf(w, "%9.3f  %s\n", l.At.Seconds(), l.What); err != nil {
			return err
		}
	}
	return nil
}

// mostLines bounds a transcript.
const mostLines = 20_000

// Transcript has a line for each message. It is safe for concurrent use.
type Transcript struct {
	began  time.Time
	follow func(Line) // takes the lines, which then are not kept; nil: they are

	mu      sync.Mutex // guards the fields below
	lines   []Line
	dropped int // lines beyond mostLines
}

// NewTranscript returns an empty transcript, whose time begins now.
func NewTranscript() *Transcript { return &Transcript{began: time.Now()} }

// NewFollowed returns a transcript that hands each line to follow, in order, and keeps none. follow
// must not block.
func NewFollowed(follow func(Line)) *Transcript {
	return &Transcript{began: time.Now(), follow: follow}
}

// Lines returns the lines so far.
func (t *Transcript) Lines() []Line {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := slices.Clone(t.lines)
	if t.dropped > 0 {
		out = append(out, Line{time.Since(t.began), fmt.Sprintf("%d more lines are left out",
			t.dropped)})
	}
	return out
}

// Note adds a line.
func (t *Transcript) Note(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.follow != nil {
		t.follow(Line{time.Since(t.began), text})
		return
	}
	if len(t.lines) >= mostLines {
		t.dropped++
		return
	}
	t.lines = append(t.lines, Line{time.Since(t.began), text})
}

// talk names the caller, the called side, and the method without its service.
type talk struct{ caller, called, method string }

// message adds a line for a message in the direction of the call, or against it.
func (t *Transcript) message(of *talk, asking bool, m message) {
	from, to := of.caller, of.called
	if !asking {
		from, to = to, from
	}
	t.Note(fmt.Sprintf("%s -> %s: %s %s", from, to, of.method, m))
}

// end adds a line for a call that ended without an answer.
func (t *Transcript) end(of *talk, err error) {
	switch {
	case err != nil:
		s := status.Convert(err)
		t.Note(fmt.Sprintf("%s of the %s ended: %s: %s", of.method, of.caller, s.Code(),
			oneline.Of(s.Message())))
	case of.method == listCall:
		t.Note(fmt.Sprintf("%s of the %s ended: the plugin closed the stream", of.method, of.caller))
	}
}

// Handler returns a handler that writes down the messages of a client's connections.
func (t *Transcript) Handler(caller, called string) stats.Handler {
	return listener{t, caller, called}
}

// listener writes messages into a transcript.
type listener struct {
	said           *Transcript
	caller, called string
}

type talkKey struct{}

// TagRPC implements stats.Handler.
func (l listener) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, talkKey{},
		&talk{l.caller, l.called, path.Base(info.FullMethodName)})
}

// HandleRPC implements stats.Handler.
func (l listener) HandleRPC(ctx context.Context, s stats.RPCStats) {
	of, ok := ctx.Value(talkKey{}).(*talk)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		if !s.Client { // the other side calls
			of.caller, of.called = of.called, of.caller
		}
	case *stats.OutPayload:
		l.said.message(of, s.Client, message{s.Payload, s.Length})
	case *stats.InPayload:
		l.said.message(of, !s.Client, message{s.Payload, s.Length})
	case *stats.End:
		l.said.end(of, s.Error)
	}
}

// TagConn implements stats.Handler.
func (listener) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (listener) HandleConn(context.Context, stats.ConnStats) {}

// message is a message with its size on the wire.
type message struct {
	what any
	size int
}

// mostShown bounds the size of messages that are written out.
const mostShown = 4 << 10

func (m message) String() string {
	if m.size > mostShown {
		return fmt.Sprintf("(%d bytes)", m.size)
	}
	if raw := bytesOf(m.what); raw != nil {
		list := &v1beta1.ListAndWatchResponse{}
		if err := proto.Unmarshal(raw, list); err != nil {
			return fmt.Sprintf("(%d bytes, no list: %s)", m.size, oneline.Of(err.Error()))
		}
		m.what = list
	}
	return "{" + oneline.Of(fmt.Sprint(m.what)) + "}"
}

// bytesOf returns a list of devices in its wire format; nil for any other message.
func bytesOf(message any) []byte {
	switch m := message.(type) {
	case interface{ ReadOnlyData() []byte }: // the device manager decodes lists itself
		return append([]byte{}, m.ReadOnlyData()...)
	case *v1beta1.ListAndWatchResponse:
		raw, err := proto.Marshal(m)
		if err != nil {
			return nil // it was decoded just now
		}
		return append([]byte{}, raw...)
	}
	return nil
}
