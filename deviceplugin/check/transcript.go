package check

import (
	"fmt"
	"io"
	"slices"
	"time"

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
	// What says who sends what to whom, or which check begins.
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

// lines returns the transcript so far.
func (r *recorder) lines() []Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := slices.Clone(r.transcript)
	if r.dropped > 0 {
		out = append(out, Line{time.Since(r.began), fmt.Sprintf("%d more lines are left out",
			r.dropped)})
	}
	return out
}

// note adds a line that is no message.
func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.add(text)
}

func (r *recorder) add(text string) {
	if len(r.transcript) >= mostLines {
		r.dropped++
		return
	}
	r.transcript = append(r.transcript, Line{time.Since(r.began), text})
}

// write adds a line for a message in the direction of the call, or against it.
func (r *recorder) write(c *call, asking bool, m message) {
	caller, called := string(c.by), string(byPlugin)
	if c.by == byPlugin {
		called = string(byManager)
	}
	if !asking {
		caller, called = called, caller
	}
	r.add(fmt.Sprintf("%s -> %s: %s %s", caller, called, c.method, m))
}

// writeEnd adds a line for a call that ended without an answer.
func (r *recorder) writeEnd(c *call) {
	switch {
	case c.err != nil:
		s := status.Convert(c.err)
		r.add(fmt.Sprintf("%s of the %s ended: %s: %s", c.method, c.by, s.Code(),
			oneline.Of(s.Message())))
	case c.method == listCall:
		r.add(fmt.Sprintf("%s of the %s ended: the plugin closed the stream", c.method, c.by))
	}
}

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
