package check

import (
	"testing"
	"time"

	"google.golang.org/grpc/stats"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

func newRecorder() *recorder {
	return &recorder{Transcript: NewTranscript(), pulse: newPulse()}
}

// A plugin that registers when the wait for it is just over is the one that is checked.
func TestRegistersLast(t *testing.T) {
	b := &bench{host: host{heard: heard{rec: newRecorder()}}}
	b.heard.rec.registrations = []*v1beta1.RegisterRequest{{ResourceName: gpu}}
	if o := checkRegisters(t.Context(), b); o.verdict != Passed || b.heard.resource != gpu {
		t.Errorf("%+v, %q is checked", o, b.heard.resource)
	}
}

// Who has seen that a call ended finds that in the transcript, and writes below it.
func TestTranscriptComesFirst(t *testing.T) {
	rec := newRecorder()
	h := rec.handler(byCheck, "p.sock")
	ctx := h.TagRPC(t.Context(), &stats.RPCTagInfo{FullMethodName: "/v1beta1.DevicePlugin/ListAndWatch"})
	h.HandleRPC(ctx, &stats.Begin{Client: true})
	ended := make(chan struct{})
	rec.Transcript.mu.Lock()
	go func() {
		defer close(ended)
		h.HandleRPC(ctx, &stats.End{Client: true})
	}()
	time.Sleep(20 * time.Millisecond) // too short: the test could only pass wrongly
	if rec.asked(byCheck, listCall)[0].ended {
		t.Error("the call ended before the transcript says so")
	}
	rec.Transcript.mu.Unlock()
	<-ended
	if !rec.asked(byCheck, listCall)[0].ended || len(rec.Lines()) != 1 {
		t.Errorf("the transcript is %v", rec.Lines())
	}
}
