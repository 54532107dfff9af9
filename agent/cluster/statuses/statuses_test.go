package statuses

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/podtest"
)

// server is the model's fake API server behind a client, with faults.
type server struct {
	mu       sync.Mutex // guards the fields below
	api      *fakeAPI
	requests []string
	patches  []string
	// trouble returns the error of a request about a pod; nil: it succeeds.
	trouble func(verb string, pod *v1.Pod) error
	// valid returns what is wrong with the pod that a patch makes; nil: nothing.
	valid func(*v1.Pod) error
}

// client returns a client whose requests reach the server in encoded form.
func (s *server) client() *fake.Clientset {
	c := fake.NewClientset()
	c.PrependReactor("*", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		pod, err := s.do(a)
		if pod == nil {
			return true, nil, err
		}
		return true, pod, err
	})
	return c
}

func (s *server) do(a clienttesting.Action) (*v1.Pod, error) {
	name := a.(interface{ GetName() string }).GetName()
	was := s.api.pods[name]
	s.requests = append(s.requests, a.GetVerb()+" "+name)
	if s.trouble != nil {
		if err := s.trouble(a.GetVerb(), was); err != nil {
			return nil, err
		}
	}
	switch a := a.(type) {
	case clienttesting.PatchAction:
		if a.GetSubresource() != "status" || a.GetPatchType() != types.StrategicMergePatchType {
			return nil, apierrors.NewBadRequest("not a patch of the status")
		}
		s.patches = append(s.patches, string(a.GetPatch()))
		return s.patch(was, a.GetPatch())
	case clienttesting.DeleteAction:
		o := a.GetDeleteOptions()
		if *o.GracePeriodSeconds != 0 {
			return nil, apierrors.NewBadRequest("a grace period")
		}
		return nil, s.api.delete(podtest.New(name, podtest.UID(*o.Preconditions.UID)),
			*o.Preconditions.ResourceVersion)
	default:
		return s.api.tell(name)
	}
}

// patch applies a strategic merge patch as an API server does.
func (s *server) patch(was *v1.Pod, patch []byte) (*v1.Pod, error) {
	var says v1.Pod
	if err := json.Unmarshal(patch, &says); err != nil {
		return nil, err
	}
	if was == nil || says.UID != was.UID || says.ResourceVersion != was.ResourceVersion {
		return nil, conflict("it")
	}
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, v1.Pod{})
	if err != nil {
		return nil, err
	}
	next := &v1.Pod{}
	if err := json.Unmarshal(after, next); err != nil {
		return nil, err
	}
	if s.valid != nil {
		if err := s.valid(next); err != nil {
			return nil, err
		}
	}
	return s.api.put(next), nil
}

// start starts writing statuses to a server that has these pods.
func start(t *testing.T, names ...string) (*server, *Statuses) {
	s := &server{api: newFakeAPI()}
	for _, name := range names {
		if _, err := s.api.create(examplePod(name)); err != nil {
			t.Fatal(err)
		}
	}
	w, err := New(Config{Client: s.client(), Registry: metrics.NewKubeRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	w.Saw(s.set())
	return s, w
}

func examplePod(name string) *v1.Pod {
	return podtest.New("n/"+name, podtest.UID(""), podtest.Containers("main"))
}

func (s *server) set() []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.api.history[len(s.api.history)-1]
}

// pod returns the pod on the server, and the requests since the last call.
func (s *server) pod(name string) (*v1.Pod, string) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := strings.Join(s.requests, ", ")
	s.requests = nil
	return s.api.pods[name], requests
}

// says writes a status for a pod on the node.
func (s *server) says(w *Statuses, name string, after v1.PodStatus, cleared bool) {
	s.mu.Lock()
	pod := s.api.pods[name]
	s.mu.Unlock()
	w.Wrote(podstatus.Change{Pod: pod, After: after, Cleared: cleared})
}

func ready(s v1.ConditionStatus) []v1.PodCondition {
	return []v1.PodCondition{{Type: v1.PodReady, Status: s}}
}

// A pod's life is one patch for each change, only of the status, and its deletion. What others
// wrote stays, and nothing is sent that the API server already has.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t, "a")
		if _, requests := s.pod("a"); requests != "" {
			t.Errorf("before anything is known: %s", requests)
		}
		pending := v1.PodStatus{Phase: v1.PodPending, StartTime: &metav1.Time{Time: time.Now()},
			Conditions: ready(v1.ConditionFalse), PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}}
		s.says(w, "a", pending, false)
		got, requests := s.pod("a")
		if requests != "patch a" || got.Status.StartTime == nil {
			t.Errorf("%s made it %+v", requests, got.Status)
		}
		s.api.writeCondition(got, v1.PodCondition{
			Type: "example.com/gate", Status: v1.ConditionTrue})
		running := pending
		running.Phase, running.Conditions = v1.PodRunning, ready(v1.ConditionTrue)
		running.PodIPs = []v1.PodIP{{IP: "10.0.0.2"}}
		s.says(w, "a", running, false) // the watch is behind
		got, requests = s.pod("a")
		if requests != "patch a, get a, patch a" || got.Status.Phase != v1.PodRunning ||
			len(got.Status.Conditions) != 2 || len(got.Status.PodIPs) != 1 ||
			got.Status.PodIPs[0].IP != "10.0.0.2" {
			t.Errorf("%s made it %+v", requests, got.Status)
		}
		if last := s.patches[len(s.patches)-1]; strings.Contains(last, "spec") ||
			strings.Contains(last, "startTime") || strings.Contains(last, "nodeName") {
			t.Errorf("the patch has more than what changed: %s", last)
		}
		w.Saw(s.set())
		s.says(w, "a", running, false)
		if _, requests = s.pod("a"); requests != "" {
			t.Errorf("although nothing changed: %s", requests)
		}
		s.api.wantsDeleted(got)
		w.Saw(s.set())
		ended := running
		ended.Phase = v1.PodSucceeded
		s.says(w, "a", ended, false)
		if got, requests = s.pod("a"); requests != "patch a" || got == nil {
			t.Errorf("ended and not cleared: %s", requests)
		}
		s.says(w, "a", ended, true)
		if got, requests = s.pod("a"); requests != "delete a" || got != nil {
			t.Errorf("cleared: %s, and it is %v", requests, got)
		}
		if s.api.wrong != nil {
			t.Error(s.api.wrong)
		}
	})
}

// After a restart of the agent nothing is written if the API server has everything, even what is
// not known here yet; an end that only the API server knows stays.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t, "a", "b")
		running := v1.PodStatus{Phase: v1.PodRunning, Conditions: ready(v1.ConditionTrue),
			StartTime: &metav1.Time{Time: time.Now()}}
		failed := running
		failed.Phase, failed.Reason = v1.PodFailed, "Evicted"
		s.says(w, "a", running, false)
		s.says(w, "b", failed, false)
		s.pod("a")
		again, err := New(Config{Client: s.client(), Registry: metrics.NewKubeRegistry()})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = again.Run(ctx) }()
		for _, name := range []string{"a", "b"} {
			again.Wrote(podstatus.Change{Pod: s.api.pods[name], First: true,
				After: v1.PodStatus{Phase: v1.PodPending}})
		}
		again.Saw(s.set())
		s.says(again, "a", running, false)
		s.says(again, "b", failed, false)
		if _, requests := s.pod("a"); requests != "" {
			t.Errorf("a restart: %s", requests)
		}
		s.says(again, "b", running, false)
		if got, _ := s.pod("b"); got.Status.Phase != v1.PodFailed || got.Status.Reason != "Evicted" {
			t.Errorf("an end became %+v", got.Status)
		}
	})
}

// A status that is too large loses its messages, and finally everything but the phase: a pod whose
// status the API server never accepts is deleted all the same.
func TestTooLarge(t *testing.T) {
	tooLarge := apierrors.NewRequestEntityTooLargeError("limit is 3145728")
	invalid := apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "a", nil)
	long := strings.Repeat("x", 1000)
	for name, test := range map[string]struct {
		refuse   error
		times    int
		message  string
		statuses int
	}{
		"once":       {tooLarge, 1, long[:shortMessage], 1},
		"twice":      {errors.New("rpc error: etcdserver: request is too large"), 2, "", 1},
		"thrice":     {tooLarge, 3, "", 0},
		"is invalid": {invalid, 1, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := start(t, "a")
				s.api.wantsDeleted(s.api.pods["a"])
				w.Saw(s.set())
				left, written := test.times, v1.PodStatus{}
				s.trouble = func(verb string, pod *v1.Pod) error {
					if verb == "delete" {
						written = pod.Status
					}
					if left--; left < 0 {
						return nil
					}
					return test.refuse
				}
				said := []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{
					Terminated: &v1.ContainerStateTerminated{Message: long}}}}
				s.says(w, "a", v1.PodStatus{Phase: v1.PodFailed,
					ContainerStatuses: said, EphemeralContainerStatuses: said}, true)
				time.Sleep(time.Minute)
				if got, requests := s.pod("a"); got != nil {
					t.Fatalf("it is there still after %s", requests)
				}
				if len(written.ContainerStatuses) != test.statuses ||
					written.Phase != v1.PodFailed {
					t.Fatalf("its last status is %+v", written)
				}
				for _, c := range append(written.ContainerStatuses,
					written.EphemeralContainerStatuses...) {
					if end := c.State.Terminated; end.Message != test.message {
						t.Errorf("the message is %q", end.Message)
					}
				}
			})
		})
	}
}

// A node that loses its rights for a while retries, less and less often, and then writes and
// deletes everything that is due.
func TestForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t, "a")
		s.api.wantsDeleted(s.api.pods["a"])
		w.Saw(s.set())
		pods := v1.SchemeGroupVersion.WithResource("pods").GroupResource()
		again, verbs, written := time.Now().Add(10*time.Minute), map[string]int{}, v1.PodStatus{}
		s.trouble = func(verb string, pod *v1.Pod) error {
			if verb == "delete" {
				written = pod.Status
			}
			if time.Now().Before(again) {
				verbs[verb]++
				return apierrors.NewForbidden(pods, "a", errors.New("no relationship found"))
			}
			return nil
		}
		end := v1.PodStatus{Phase: v1.PodFailed, Message: strings.Repeat("x", 1000)}
		s.says(w, "a", end, true)
		time.Sleep(9 * time.Minute)
		if got, requests := s.pod("a"); got == nil || verbs["patch"] < 3 || verbs["patch"] > 60 ||
			verbs["delete"] > 0 {
			t.Errorf("without rights there were %v: %s", verbs, requests)
		}
		again = time.Now() // the status may be written again, but the pod not yet deleted
		deletions := 2
		inner := s.trouble
		s.trouble = func(verb string, pod *v1.Pod) error {
			if verb == "delete" && deletions > 0 {
				deletions--
				return apierrors.NewForbidden(pods, "a", errors.New("a webhook says no"))
			}
			return inner(verb, pod)
		}
		time.Sleep(10 * time.Minute)
		if got, requests := s.pod("a"); got != nil {
			t.Fatalf("it is there still after %s", requests)
		}
		if written.Phase != v1.PodFailed || written.Message != end.Message {
			t.Errorf("its last status is %+v", written)
		}
	})
}

// If the API server changes a status that it was sent, it wants it that way: it is not sent again
// and again.
func TestItKnowsBetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t, "a")
		next := 0
		c := fake.NewClientset()
		c.PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			next++
			changed := s.api.pods["a"].DeepCopy() // an older server, which drops unknown fields
			changed.Status.Phase = v1.PodRunning
			return true, s.api.put(changed), nil
		})
		w.client = c
		s.says(w, "a", v1.PodStatus{Phase: v1.PodRunning, ObservedGeneration: 3}, false)
		synctest.Wait()
		w.Saw(s.set())
		time.Sleep(10 * time.Minute)
		if next != 1 {
			t.Errorf("it was sent %d times", next)
		}
		s.says(w, "a", v1.PodStatus{Phase: v1.PodRunning, ObservedGeneration: 4}, false)
		if synctest.Wait(); next != 2 {
			t.Errorf("another status was sent %d times", next-1)
		}
	})
}

// A pod with the same name and another UID is another pod: it does not get the first one's status,
// and is not deleted in its place.
func TestAnotherPodOfTheName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t, "a")
		first := s.api.pods["a"]
		s.api.wantsDeleted(first)
		w.Saw(s.set())
		s.api.remove("a")
		if _, err := s.api.create(examplePod("a")); err != nil {
			t.Fatal(err)
		}
		w.Wrote(podstatus.Change{Pod: first, After: v1.PodStatus{Phase: v1.PodFailed},
			Cleared: true})
		time.Sleep(time.Minute)
		got, requests := s.pod("a")
		if got == nil || got.UID == first.UID || got.Status.Phase != v1.PodPending {
			t.Errorf("after %s the other pod is %+v", requests, got)
		}
		if n := strings.Count(requests, " a"); n > 3 {
			t.Errorf("%d requests about a pod that is gone: %s", n, requests)
		}
	})
}

// A status that another client, such as another node of the same name, overwrites is written again
// at once, and then with pauses: two nodes do not keep an API server busy. Changes are written at
// once.
func TestContradicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, w := start(t, "a")
		running := v1.PodStatus{Phase: v1.PodRunning, HostIP: "10.0.0.1"}
		s.says(w, "a", running, false)
		contradict := func() {
			synctest.Wait()
			s.mu.Lock()
			if other := s.api.pods["a"].DeepCopy(); other.Status.HostIP != "10.0.0.2" {
				other.Status.HostIP = "10.0.0.2"
				s.api.put(other)
			}
			s.mu.Unlock()
			w.Saw(s.set())
		}
		contradict()
		if got, requests := s.pod("a"); requests != "patch a, patch a" ||
			got.Status.HostIP != "10.0.0.1" {
			t.Errorf("%s made it %+v", requests, got.Status)
		}
		for range 6000 {
			contradict()
			time.Sleep(10 * time.Millisecond)
		}
		if _, requests := s.pod("a"); strings.Count(requests, "patch") < 5 ||
			strings.Count(requests, "patch") > 7 {
			t.Errorf("in a minute of contradictions: %s", requests)
		}
		contradict()
		running.Message = "new"
		s.says(w, "a", running, false)
		if got, _ := s.pod("a"); got.Status.Message != "new" || got.Status.HostIP != "10.0.0.1" {
			t.Errorf("what is new waits: %+v", got.Status)
		}
		time.Sleep(time.Minute)
		contradict()
		if got, _ := s.pod("a"); got.Status.HostIP != "10.0.0.1" {
			t.Error("after a minute of peace it is not put right at once")
		}
	})
}
