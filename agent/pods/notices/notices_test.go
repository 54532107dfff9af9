package notices

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// What of a pod has no effect is told once, and again when the pod gets more of it.
func TestNotices(t *testing.T) {
	var reported []string
	n := New(Config{Enabled: none, Lacking: func(_, _ *v1.Pod) []string { return nil }, Pod: func(
		pod *v1.Pod, eventType, reason, message string) {
		reported = append(reported, pod.Name+" "+eventType+" "+reason+" "+message)
	}})
	plain := podtest.New("plain", podtest.UID("1"), podtest.Containers("c"))
	lacking := plain.DeepCopy()
	lacking.Name, lacking.UID = "lacking", "2"
	lacking.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		Secret: &v1.SecretVolumeSource{DefaultUser: ptr.To[int64](1)}}}}
	more := lacking.DeepCopy()
	more.Spec.Containers[0].LivenessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{
		GRPC: &v1.GRPCAction{Mode: ptr.To(v1.GRPCProbeModeTLS)}}}
	for _, pod := range []*v1.Pod{plain, lacking, lacking, lacking.DeepCopy(), more} {
		n.Look(podworker.Report{Pod: pod})
	}
	const about = " Warning FieldsWithoutEffect Without effect in this version of numalet: "
	want := []string{
		"lacking" + about + "spec.volumes[v].secret.defaultUser",
		"lacking" + about + "spec.volumes[v].secret.defaultUser, " +
			"spec.containers[c].livenessProbe.grpc.mode",
	}
	if !slices.Equal(reported, want) {
		t.Errorf("told %q, want %q", reported, want)
	}
	n.Gone("1")
	n.Gone("2")
	if len(n.pods) != 0 {
		t.Errorf("%d pods are remembered that are gone", len(n.pods))
	}
}

// none: no feature gate is on.
func none(string) bool { return false }

// That a container waits since it ended is told once for each of its ends.
func TestBackOffIsReported(t *testing.T) {
	var reported []string
	n := New(Config{Enabled: none, Lacking: func(_, _ *v1.Pod) []string { return nil }, Container: func(
		of podspec.Ref, eventType, reason, message string) {
		reported = append(reported, of.Container+" "+eventType+" "+reason+" "+message)
	}})
	pod := podtest.New("shop/p", podtest.UID("1"), podtest.Containers("a", "b"))
	for _, step := range []struct{ id, reason string }{
		{"1", ""}, {"1", cri.ReasonCrashLoopBackOff}, {"1", cri.ReasonCrashLoopBackOff},
		{"2", ""}, {"2", cri.ReasonCrashLoopBackOff}, {"2", cri.ReasonImagePullBackOff},
	} {
		r := podworker.Report{Pod: pod, Observed: cri.Pod{Containers: []cri.Container{
			{Name: "b", ID: step.id}}}}
		r.Decision.Waiting = map[string]status.Reason{"a": {Reason: cri.ReasonCrashLoopBackOff},
			"b": {Reason: step.reason}}
		n.Look(r)
	}
	const want = "b Warning BackOff Back-off restarting failed container b in pod p_shop(1)"
	if !slices.Equal(reported, []string{want, want}) {
		t.Errorf("told %q", reported)
	}
}

// What cannot be seen of a pod, a change that the node cannot make, and that a pod which the node
// has ended stays, are told.
func TestWhatGoesWrongWithAPodIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		n := New(Config{
			Pod: func(_ *v1.Pod, eventType, reason, message string) {
				reported = append(reported, eventType+" "+reason+" "+message)
			},
			Lacking: func(was, is *v1.Pod) []string { return []string{was.Name, is.Name} },
			Enabled: none,
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- n.Run(ctx) }()
		tells := func(why string, want ...string) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(reported, want) {
				t.Errorf("%s: told %q, want %q", why, reported, want)
			}
			reported = nil
		}
		first, second := podtest.New("first", podtest.UID("")), podtest.New("second", podtest.UID(""))
		n.Look(podworker.Report{Pod: first, Err: errors.New("no answer")})
		tells("unseen", "Warning FailedSync error determining status: no answer")
		n.Look(podworker.Report{Pod: second})
		n.Look(podworker.Report{Pod: second})
		tells("changed", "Warning FailedNodeDeclaredFeaturesCheck Pod requires node features that are "+
			"not available: first, second")

		const late = "Warning ExceededGracePeriod Container runtime did not kill the pod within " +
			"specified grace period."
		pods := map[types.UID]*v1.Pod{}
		end := func(uid types.UID, stop podworker.Stop, state podworker.State) {
			pod := pods[uid]
			if pod == nil {
				pod = podtest.New(string(uid))
				pods[uid] = pod
			}
			r := podworker.Report{Pod: pod, Stop: &stop}
			r.Decision.State = state
			n.Look(r)
		}
		end("evicted", podworker.Stop{Reason: "Evicted", Grace: time.Minute}, podworker.TerminatingPod)
		end("deleted", podworker.Stop{Grace: time.Second}, podworker.TerminatingPod)
		time.Sleep(80 * time.Second)
		end("evicted", podworker.Stop{Reason: "Evicted", Grace: time.Minute}, podworker.TerminatingPod)
		tells("in time")
		time.Sleep(time.Minute)
		tells("late", late)
		for _, over := range []func(){
			func() {
				end("short", podworker.Stop{Reason: "Preempted", Grace: 1}, podworker.Finished)
			}, func() { n.Gone("short") },
		} {
			end("short", podworker.Stop{Reason: "Preempted", Grace: 1}, podworker.TerminatingPod)
			time.Sleep(leastLate - 1)
			over()
			time.Sleep(time.Hour)
			tells("over in time")
			n.Gone("short")
		}
		end("last", podworker.Stop{Reason: "Evicted"}, podworker.TerminatingPod)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		tells("nobody tells any more")
	})
}
