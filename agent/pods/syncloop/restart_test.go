package syncloop

import (
	"testing"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/cri"
)

// A pod that its source took away and wants again before it was gone is told as restarted when it
// is decided on anew, once.
func TestRestartedPodIsReported(t *testing.T) {
	l, reported := newTestLoop(cri.Pod{})
	l.says(t, source.ADD)
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Admit})
	l.says(t, source.REMOVE)
	l.says(t, source.ADD)
	reported.reported = nil
	l.hears(t, pod.Gone)
	reported.expect(t, "it is gone", "release u")
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Released})
	reported.expect(t, "what it held is given back", "submit u adopt=false", "restarted u")
	l.decided(t.Context(), report.Result{Pod: examplePod(), Outcome: decide.Admit})
	l.says(t, source.UPDATE)
	reported.expect(t, "it runs again", "run u", "run u")
}
