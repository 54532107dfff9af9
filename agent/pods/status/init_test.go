package status

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/cri"
)

// TestHalfDoneInit: an init container with a process that the kernel killed has failed, whatever
// its exit code.
func TestHalfDoneInit(t *testing.T) {
	for _, tc := range []struct{ pod, waiting, want string }{
		{"Always init | web", "init", `
			Pending
			init #0 waiting (CrashLoopBackOff), before: exited 0 (OOMKilled)
			web #0 waiting (PodInitializing)
			not Initialized: ContainersNotInitialized: containers with incomplete status: [init]
			not Ready: ContainersNotReady: containers with unready status: [web]
			not ContainersReady: ContainersNotReady: containers with unready status: [web]`},
		{"Never init | web", "", `
			Failed
			init #0 exited 0 (OOMKilled)
			web #0 waiting (PodInitializing)
			not Initialized: ContainersNotInitialized: containers with incomplete status: [init]
			not Ready: PodFailed
			not ContainersReady: PodFailed`},
	} {
		in := Input{Pod: makePod(tc.pod), Now: at(50),
			Facts: Facts{Observed: observe("sandbox init=oom"), Waiting: map[string]Reason{}}}
		if tc.waiting != "" {
			in.Waiting[tc.waiting] = Reason{Reason: cri.ReasonCrashLoopBackOff}
		}
		want := strings.TrimPrefix(strings.ReplaceAll(tc.want, "\t", ""), "\n")
		if diff := cmp.Diff(want, story(Generate(in))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.pod, diff)
		}
	}
}

// TestLostInit: an init container without a record has succeeded if a later container ran, and its
// message says so. A previous status of it is kept.
func TestLostInit(t *testing.T) {
	const words = "Unable to get init container status from container runtime and pod has been " +
		"initialized, treat it as exited normally"
	in := Input{Pod: makePod("Always init | web"), Now: at(50)}
	in.Facts = Facts{Observed: observe("sandbox web")}
	lost := Generate(in).InitContainerStatuses[0]
	if end := lost.State.Terminated; end == nil || end.Reason != "Completed" ||
		end.ExitCode != 0 || end.Message != words || !lost.Ready {
		t.Errorf("a record that was lost: %+v", lost)
	}
	in.Facts = Facts{Observed: observe("sandbox web init=0")}
	in.Previous = Generate(in)
	in.Facts = Facts{Observed: observe("sandbox web")}
	reported := Generate(in).InitContainerStatuses[0]
	if end := reported.State.Terminated; end == nil || end.Message != "" || end.FinishedAt.IsZero() {
		t.Errorf("a record that was told of before it was lost: %+v", reported)
	}
}
