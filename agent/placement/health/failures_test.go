package health

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/internal/podtest"
)

// failing is a node with a pod, whose container main has devices a and b of a plugin.
type failing struct {
	*Failures
	inventory devicemanager.Inventory
	pod       *v1.Pod
	held      allocation.Pod
	status    v1.PodStatus
	reported  []string
	ended     []string
	refreshed int
}

func newFailing(t *testing.T, dir string, policies ...string) *failing {
	t.Helper()
	var rules failure.Rules
	for _, text := range policies {
		if err := rules.Add(text, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	book, err := OpenFailures(dir, rules)
	if err != nil {
		t.Fatal(err)
	}
	f := &failing{inventory: inventoryOf("a b"),
		pod: podtest.New("ns/train", podtest.UID("p"), podtest.Containers("main")),
		held: allocation.Pod{Containers: map[string]allocation.Container{"main": {
			allocation.Devices{{Resource: "example.com/gpu", IDs: []string{"a", "b"}}}}}},
	}
	f.runs("c1")
	f.Failures, err = NewFailures(FailuresConfig{Config: Config{
		State: func() allocation.State {
			return allocation.State{Pods: map[types.UID]allocation.Pod{"p": f.held}}
		},
		Inventory: func() devicemanager.Inventory { return f.inventory },
		Pod:       func(uid types.UID) (*v1.Pod, bool) { return f.pod, uid == "p" },
		Status:    func(types.UID) v1.PodStatus { return f.status },
		Refresh:   func(types.UID) { f.refreshed++ },
		Tell: func(_ *v1.Pod, _, reason, message string) {
			f.reported = append(f.reported, reason+" "+message)
		},
	}, Book: book, Known: func(uid types.UID) bool { return uid == "p" },
		End: func(pod *v1.Pod, message string, grace time.Duration) {
			f.ended = append(f.ended, pod.Name+" in "+grace.String()+": "+message)
		},
		Grace: func(*v1.Pod) time.Duration { return 30 * time.Second }})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// runs has main run with that id from now on; "": it has crashed, and is started again.
func (f *failing) runs(id string) {
	state := v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}
	if id == "" {
		state = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}
	}
	f.status = v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{{
		Name: "main", ContainerID: "containerd://" + id, State: state}}}
}

func (f *failing) looks(t *testing.T, after time.Duration, inventory string) (due time.Duration) {
	time.Sleep(after)
	f.reported, f.ended, f.refreshed = nil, nil, 0
	f.inventory = inventoryOf(inventory)
	return time.Until(f.look(t.Context()))
}

// A container is condemned by its id once its device has been unhealthy for the hold-off, whatever else
// happens to it meanwhile, and stays so over a restart of the agent; its next run is not.
func TestContainersAreCondemnedOnce(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFailing(t, dir, "restart-container")
		if due := f.looks(t, 0, "a b!"); due != time.Minute || len(f.reported) != 1 ||
			!strings.HasPrefix(f.reported[0], "DeviceFailurePlanned Container main is restarted in 1m0s") ||
			!strings.Contains(f.reported[0], "device b of example.com/gpu is unhealthy, says the device plugin (") {
			t.Errorf("due in %s, told %q", due, f.reported)
		}
		if f.looks(t, 59*time.Second, "a b!"); f.Failures.cfg.Book.Condemned("p") != nil {
			t.Error("condemned before its time")
		}
		f.looks(t, time.Second, "a b!")
		if got := f.cfg.Book.Condemned("p"); got["c1"] == "" || len(got) != 1 || f.refreshed != 1 ||
			len(f.reported) != 1 {
			t.Errorf("condemned are %q, %d times looked at, told %q", got, f.refreshed, f.reported)
		}
		f = newFailing(t, dir, "restart-container") // the agent is killed, and its plugin not back yet
		if got := f.cfg.Book.Condemned("p"); got["c1"] == "" {
			t.Errorf("after a restart condemned are %q", got)
		}
		f.looks(t, time.Second, "")
		f.runs("")
		f.looks(t, time.Second, "a b!")
		f.runs("c2")
		f.looks(t, time.Hour, "a b!")
		if got := f.cfg.Book.Condemned("p"); got["c2"] != "" || len(f.reported) != 0 {
			t.Errorf("then condemned are %q, told %q", got, f.reported)
		}
		o, ok := f.cfg.Book.Outlooks()[failure.Device{Pod: "p", Container: "main",
			Resource: "example.com/gpu", ID: "b"}]
		if !ok || !strings.Contains(o.String(time.Now()), "the container was restarted once 1h0m2s ago") {
			t.Errorf("what is known of it: %v %s", ok, o.String(time.Now()))
		}
	})
}

// A crash between the failure and the end of its hold-off does not begin the hold-off anew, while a
// container that has ended for good counts no more.
func TestCrashesInTheHoldOff(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy]int{v1.RestartPolicyAlways: 1, v1.RestartPolicyNever: 0} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			f := newFailing(t, dir, "fail-pod")
			f.pod.Spec.RestartPolicy = policy
			f.looks(t, 0, "a! b")
			f.runs("")
			f.looks(t, 30*time.Second, "a! b")
			if f.looks(t, 30*time.Second, "a! b"); len(f.ended) != want {
				t.Errorf("%s: ended are %q", policy, f.ended)
			}
		})
	}
}

// failed lists the pods that were ended for their devices.
func (f *failing) failed() string {
	var out []string
	f.cfg.Book.Failed(func(uid types.UID, message string, until time.Time) {
		out = append(out, fmt.Sprintf("%s in %v: %s", uid, time.Until(until), message))
	})
	return strings.Join(out, "; ")
}

// A pod that was to fail fails after a restart of the agent too, with the same words. What cannot be
// written is not done, and is tried again.
func TestFailedPodsAreRemembered(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFailing(t, dir, "example.com/gpu=fail-pod:10s")
		f.looks(t, 0, "a! b")
		path := filepath.Join(dir, FailuresFile)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if due := f.looks(t, 10*time.Second, "a! b"); len(f.ended) > 0 || due != failuresRetry {
			t.Errorf("without a file ended are %q, the next look is in %s", f.ended, due)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		f.looks(t, 10*time.Second, "a! b")
		const message = "Device a of example.com/gpu has been unhealthy for 20s, says the device plugin"
		if !slices.Equal(f.ended, []string{"train in 30s: " + message}) {
			t.Errorf("ended are %q", f.ended)
		}
		f = newFailing(t, dir)
		if got, want := f.failed(), "p in 30s: "+message; got != want {
			t.Errorf("after a restart has failed %q, want %q", got, want)
		}
		f.pod = podtest.New("other")
		f.cfg.Known = func(types.UID) bool { return false }
		f.held = allocation.Pod{}
		if f.looks(t, 0, ""); len(f.cfg.Book.state.Load().Acts) > 0 {
			t.Errorf("remembered of a pod that is gone: %+v", f.cfg.Book.state.Load().Acts)
		}
	})
}

// What was done in an earlier life of a pod counts no more in the next one of the same UID: at once, and
// after a restart of the agent.
func TestFailedPodsBeginAgain(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := newFailing(t, dir, "example.com/gpu=fail-pod:10s")
		f.looks(t, 0, "a! b")
		if f.looks(t, 10*time.Second, "a! b"); len(f.ended) != 1 {
			t.Fatalf("ended are %q", f.ended)
		}
		f.cfg.Book.Over("p")
		f.looks(t, 0, "a b")
		if got := f.failed(); got != "" {
			t.Errorf("as it begins again has failed %s", got)
		}
		f.looks(t, 0, "a b!")
		if f.looks(t, 10*time.Second, "a b!"); len(f.ended) != 1 {
			t.Errorf("as another device failed ended are %q", f.ended)
		}
		if f.failed() == "" {
			t.Error("that is not remembered")
		}
	})
}

// The devices of claims count by their driver, those of extended resources also by the resource, and
// those with administrative access not at all.
func TestFailedClaims(t *testing.T) {
	d := OpenDrivers(t.Context(), t.TempDir(), func() {})
	d.Hear(gpu0.Driver, said(dra.Unhealthy, "it is hot"))
	admin := gpu0
	admin.Admin = true
	mapped := v1.PodStatus{ExtendedResourceClaimStatus: &v1.PodExtendedResourceClaimStatus{
		ResourceClaimName: "made", RequestMappings: []v1.ContainerExtendedResourceRequest{
			{ContainerName: "main", ResourceName: "example.com/gpu", RequestName: "r"}}}}
	const who = " (driver gpu.example.com) has been unhealthy for 0s, says driver gpu.example.com: it is hot"
	for _, c := range []struct {
		policy string
		claim  allocation.Claim
		want   string
	}{
		{"gpu.example.com=fail-pod:0s", allocation.Claim{Name: "gpus", Request: "one",
			Devices: []claim.Device{gpu0, gpu0}}, "Device gpu-0 of claim gpus" + who},
		{"example.com/gpu=fail-pod:0s", allocation.Claim{Request: "r", Devices: []claim.Device{gpu0}},
			"Device gpu-0 of example.com/gpu" + who},
		{"gpu.example.com=fail-pod:0s", allocation.Claim{Request: "r", Devices: []claim.Device{gpu0}},
			"Device gpu-0 of example.com/gpu" + who},
		{"gpu.example.com=none,fail-pod:0s", allocation.Claim{Name: "gpus", Devices: []claim.Device{gpu0}}, ""},
		{"fail-pod:0s", allocation.Claim{Name: "gpus", Devices: []claim.Device{admin}}, ""},
	} {
		f := newFailing(t, t.TempDir(), strings.Split(c.policy, ",")...)
		f.cfg.Drivers, f.pod.Status = d, mapped
		f.held.Containers["main"] = allocation.Container{}.With(allocation.Claims{c.claim})
		f.looks(t, 0, "")
		if got := strings.Join(f.ended, "; "); strings.TrimPrefix(got, "train in 30s: ") != c.want {
			t.Errorf("%s: ended are %q, want %q", c.policy, got, c.want)
		}
	}
}
