package pods

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/admission/report"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/placement/resize"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/failure"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// newStatuses makes those of a node whose agent ran before in that root, and what hears of them.
func newStatuses(t *testing.T, root string, change ...func(*StatusConfig)) (*Statuses, *hearers) {
	t.Helper()
	cfg, err := config.FromArgs([]string{"--topology-from=fixture:laptop", "--root-dir=" + root})
	if err != nil {
		t.Fatal(err)
	}
	h := &hearers{}
	c := StatusConfig{
		Node: node.Node{Identity: node.Identity{Settings: cfg, BootID: "boot"}, Events: noEvents{}}, Metrics: h,
		Publishers: []Publisher{{Status: func(c podstatus.Change) {
			h.heard = append(h.heard, "published "+c.Pod.Name)
		}}},
		Get:    func(types.UID) (cri.Pod, bool) { return cri.Pod{}, false },
		Events: mailbox.New[syncloop.Event](),
	}
	if c.Endings, err = OpenEndings(t.Context(), c.Node, c.Events); err != nil {
		t.Fatal(err)
	}
	if c.Failures, err = health.OpenFailures(root, failure.Rules{}); err != nil {
		t.Fatal(err)
	}
	for _, do := range change {
		do(&c)
	}
	return NewStatuses(c), h
}

func begins(s *Statuses, p *v1.Pod) {
	s.Write(pod.Effect{Kind: pod.Write, Facts: pod.Facts{Spec: pod.Spec{Pod: p}}, Status: pod.StatusPending})
}

// noEvents is a recorder of events about pods, which are not looked at.
type noEvents struct{ node.Events }

func (noEvents) Pod(*v1.Pod, string, string, string) {}

// hearers are metrics and a publisher.
type hearers struct {
	Metrics
	heard []string
}

func (h *hearers) Rejected(reason string) { h.heard = append(h.heard, "rejected "+reason) }

func (h *hearers) Delivered([]*v1.Pod) {}

func (h *hearers) Preempted(resource string) { h.heard = append(h.heard, "preempted for "+resource) }

func (h *hearers) Status(c podstatus.Change) { h.heard = append(h.heard, "counted "+c.Pod.Name) }

// Whatever ends pods has the syncLoop end them with its reason, and the next run of the agent too: but a static
// pod that a shutdown ends, and a pod whose life is over. What was done about failed devices counts as well.
func TestEnds(t *testing.T) {
	root := t.TempDir()
	text := `[{"pod": "failed", "action": "fail-pod", "message": "a GPU is gone"},
 {"pod": "restarted", "action": "restart-container"}]`
	if err := os.WriteFile(filepath.Join(root, health.FailuresFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	names := []string{"limited", "gone", "down", "static", "ill", "many", "victim", "late", "failed", "restarted"}
	pods := map[string]*v1.Pod{}
	for _, name := range names {
		pods[name] = podtest.New(name)
	}
	podtest.Source("file")(pods["static"])
	synctest.Test(t, func(t *testing.T) {
		s, h := newStatuses(t, root)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.endings.Work(ctx, s.MayHave) }()
		for _, name := range []string{"limited", "gone"} {
			s.Evict(eviction.Eviction{Pod: pods[name], Words: eviction.Words{Message: "its limit"}, OwnLimit: true,
				Grace: time.Second, Signal: eviction.NodeFSAvailable})
		}
		s.Down(pods["down"], 2*time.Second)
		s.Down(pods["static"], 2*time.Second)
		s.fail(pods["ill"], "it is hot", 3*time.Second)
		Refuse(s.node, h, s.endings)(pods["many"], "too many volumes")
		road := &Pods{Statuses: s, c: Config{Metrics: h}}
		road.preempt(report.Preemption{Victim: pods["victim"], Resource: "cpu"}, "Preempting", "for a critical pod")
		road.late(pods["late"])
		want := []string{"rejected VolumeAttachmentLimitExceeded", "preempted for cpu"}
		if !slices.Equal(h.heard, want) {
			t.Errorf("of pods that are refused or make way was heard %q, want %q", h.heard, want)
		}
		synctest.Wait()
		begins(s, pods["gone"])
		s.Forget("gone")
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		var got []string
		for _, e := range s.events.Take() {
			if e.Kind == pod.Killed {
				got = append(got, fmt.Sprint(e.UID, " ", e.Why.Reason, " ", e.Why.Message, " ", e.Why.OwnLimit, " ", e.Grace))
			}
		}
		const ends = `limited Evicted its limit true 1s
gone Evicted its limit true 1s
down Terminated Pod was terminated in response to imminent node shutdown. false 2s
static Terminated Pod was terminated in response to imminent node shutdown. false 2s
ill DeviceFailed it is hot false 3s
many VolumeAttachmentLimitExceeded Pod was rejected: too many volumes false 0s
victim Preempting for a critical pod false 0s
late DeadlineExceeded Pod was active on the node longer than the specified deadline false 0s`
		if diff := cmp.Diff(ends, strings.Join(got, "\n")); diff != "" {
			t.Errorf("ended (-want +got):\n%s", diff)
		}
	})
	s, h := newStatuses(t, root)
	var got []string
	for _, name := range names {
		if why, _, ok := s.endings.PendingKill(pods[name]); ok {
			got = append(got, name+" "+why.Reason+" "+why.Message)
		}
	}
	const next = `limited Evicted its limit
down Terminated Pod was terminated in response to imminent node shutdown.
ill DeviceFailed it is hot
many VolumeAttachmentLimitExceeded Pod was rejected: too many volumes
victim Preempting for a critical pod
late DeadlineExceeded Pod was active on the node longer than the specified deadline
failed DeviceFailed a GPU is gone`
	if diff := cmp.Diff(next, strings.Join(got, "\n")); diff != "" {
		t.Errorf("the next run ends (-want +got):\n%s", diff)
	}
	assigned, err := placement.OpenStore(t.Context(), s.node)
	if err != nil {
		t.Fatal(err)
	}
	begins(s, pods["limited"])
	if want := []string{"counted limited", "published limited"}; !slices.Equal(h.heard, want) {
		t.Errorf("of a status was heard %q, want %q", h.heard, want)
	}
	uid, short, ok := s.EvictionFacts(assigned).Last()
	if uid != "limited" || short != eviction.NodeFSAvailable || !ok {
		t.Errorf("the last eviction is of %q, %q, %t", uid, short, ok)
	}
}

// A pod that is not known may be the node's until what all sources had was taken in: that they have sent
// it is not enough.
func TestMayHave(t *testing.T) {
	s := &Statuses{Store: podstatus.New(podstatus.Config{}), publishers: publishers{complete: new(atomic.Bool)}}
	if !s.MayHave("u") {
		t.Error("a pod is gone before the sources were heard")
	}
	s.heard()
	if s.MayHave("u") {
		t.Error("a pod that no source has may be there")
	}
}

// The newest statuses have arrived once they have for every publisher that can tell.
func TestSynced(t *testing.T) {
	says := func(synced bool) Publisher {
		return Publisher{Synced: func(context.Context) bool { return synced }}
	}
	for _, tt := range []struct {
		all  []Publisher
		want bool
	}{
		{[]Publisher{{}}, true},
		{[]Publisher{says(true), {}, says(true)}, true},
		{[]Publisher{says(true), {}, says(false)}, false},
		{[]Publisher{says(false), says(true)}, false},
	} {
		if got := (publishers{all: tt.all}).Synced(t.Context()); got != tt.want {
			t.Errorf("of %d publishers all are synced: %t, want %t", len(tt.all), got, tt.want)
		}
	}
}

// A shutdown waits for a pod as long as something of it runs, is on the node, is held, or is released.
func TestShutdownFacts(t *testing.T) {
	s, _ := newStatuses(t, t.TempDir())
	s.get = func(uid types.UID) (cri.Pod, bool) {
		return cri.Pod{Sandboxes: []cri.Sandbox{{Ready: uid == "runs"}}}, true
	}
	admitted := pod.Facts{Spec: pod.Spec{Pod: podtest.New("on-the-node")}, Admitted: true}
	s.Write(pod.Effect{Kind: pod.Write, Facts: admitted, Status: pod.StatusPending})
	left := s.ShutdownFacts(store.Fixed(allocation.State{
		Pods: map[types.UID]allocation.Pod{"holds": {UID: "holds", Containers: map[string]allocation.Container{
			"main": {allocation.CPUs(cpuset.New(1))}}}},
		PendingReleases: []allocation.PendingRelease{{UID: "released"}},
	})).Left
	for uid, want := range map[types.UID]bool{
		"runs": true, "on-the-node": true, "holds": true, "released": true, "gone": false,
	} {
		if got := left(uid); got != want {
			t.Errorf("of pod %s something is left: %t, want %t", uid, got, want)
		}
	}
}

// The state says what a pod was allocated; of others, what they run with.
func TestAllocated(t *testing.T) {
	recorded := &podspec.Resources{}
	p := &Pods{Statuses: new(Statuses), c: Config{Queue: placement.QueueConfig{Store: store.Fixed(allocation.State{
		Pods: map[types.UID]allocation.Pod{"p": {UID: "p", Resources: recorded}}})}}}
	runs := cri.Pod{Sandboxes: []cri.Sandbox{{Annotations: map[string]string{resize.Annotation: "{}"}}}}
	if got := p.allocated("p", runs); got != recorded {
		t.Errorf("a recorded pod was allocated %+v", got)
	}
	if got := p.allocated("another", runs); got == nil || got == recorded {
		t.Errorf("another pod was allocated %+v", got)
	}
	if got := p.allocated("another", cri.Pod{}); got != nil {
		t.Errorf("a pod of which nothing is known was allocated %+v", got)
	}
}

// Workers wait until the API server knows a status only in a cluster.
func TestWorkersKnow(t *testing.T) {
	p := &Pods{Statuses: new(Statuses), c: Config{Ends: Ends{
		Volumes: struct{ Volumes }{}, Records: struct{ Records }{}, Probes: struct{ Probes }{}}}}
	if p.known(podstatus.Reporter{}).IsPublished != nil {
		t.Error("workers of a standalone node wait for the API server")
	}
	p.c.Cluster = &Cluster{Newest: func(uid types.UID) bool { return uid == "p" }}
	if is := p.known(podstatus.Reporter{}).IsPublished; is == nil || !is("p") || is("another") {
		t.Error("workers do not wait for the API server")
	}
}

// The syncLoop hears that a pod ends by itself when its final phase is about to be read.
func TestEndingIsAnEvent(t *testing.T) {
	s, h := newStatuses(t, t.TempDir())
	one := podtest.New("p", podtest.Containers("main"))
	one.Spec.RestartPolicy = v1.RestartPolicyNever
	admitted := pod.Facts{Spec: pod.Spec{Pod: one}, Admitted: true}
	s.Write(pod.Effect{Kind: pod.Write, Facts: admitted, Status: pod.StatusPending})
	s.Write(pod.Effect{Kind: pod.Write, Facts: admitted, Status: pod.StatusAdmitted})
	ended := cri.Pod{UID: "p", Containers: []cri.Container{{ID: "c", Name: "main", State: cri.ContainerExited,
		Exit: cri.Exit{Message: "done"}}}}
	now, ok := podstatus.Reporter{Statuses: s.Store}.Report(podworker.Report{Pod: one, Observed: ended})
	if !ok || now.Phase != v1.PodSucceeded {
		t.Errorf("the pod is %s, %t", now.Phase, ok)
	}
	if got := s.events.Take(); len(got) != 1 || got[0].Kind != pod.Ending || got[0].UID != "p" {
		t.Errorf("events are %+v, heard was %q", got, h.heard)
	}
}

// The first mirror pods show the last statuses of static pods of which none was kept; they are never run.
func TestSawMirrors(t *testing.T) {
	root := t.TempDir()
	static := podtest.New("s", podtest.Containers("main"), podtest.Source(source.FileSource),
		podtest.Annotations(podspec.AnnotationHash, "s"))
	mirror := static.DeepCopy()
	mirror.UID, mirror.Annotations[podspec.AnnotationMirror] = "m", "s"
	mirror.Status = v1.PodStatus{Phase: v1.PodRunning, StartTime: ptr.To(metav1.Unix(1, 0))}
	s, h := newStatuses(t, root, func(c *StatusConfig) {
		var err error
		if c.Kept, err = OpenKept(t.Context(), c.Node); err != nil {
			t.Fatal(err)
		}
		c.Get = func(types.UID) (cri.Pod, bool) { return cri.Pod{Sandboxes: []cri.Sandbox{{Ready: true}}}, true }
	})
	begins(s, static)
	p := &Pods{Statuses: s, c: Config{Metrics: h}, Workers: podworker.New(podworker.Config{})}
	if run := p.saw([]*v1.Pod{mirror}); len(run) != 0 {
		t.Errorf("%v are to run", run)
	}
	if got := s.Status("s").StartTime; !got.Equal(mirror.Status.StartTime) {
		t.Errorf("the pod has run since %v", got)
	}
}

// Each publisher gets all pods of the API server; the mirror pods are never run.
func TestDelivered(t *testing.T) {
	var got [][]*v1.Pod
	hears := func(all []*v1.Pod) { got = append(got, all) }
	p := publishers{all: []Publisher{{Delivered: hears}, {}, {Delivered: hears}}}
	shown := podtest.New("a", podtest.Annotations(podspec.AnnotationSource, podspec.APISource,
		podspec.AnnotationMirror, ""))
	run := podtest.New("b", podtest.Annotations(podspec.AnnotationSource, podspec.APISource))
	all := []*v1.Pod{shown, run}
	if runs := p.delivered(all); !slices.Equal(runs, []*v1.Pod{run}) {
		t.Errorf("%v are to run", runs)
	}
	if len(got) != 2 || !slices.Equal(got[0], all) || !slices.Equal(got[1], all) {
		t.Errorf("the publishers got %v", got)
	}
}
