package nodestatus

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/podtest"
)

// text formats a resource list, sorted.
func text(l v1.ResourceList) string {
	var words []string
	for name, q := range l {
		words = append(words, string(name)+"="+q.String())
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

func facts() Facts {
	return Facts{
		Addresses:   Addresses{All: []v1.NodeAddress{{Type: v1.NodeHostName, Address: "n"}}},
		Capacity:    podtest.Amounts("cpu=4 memory=8Gi pods=110 hugepages-2Mi=1Gi"),
		Allocatable: podtest.Amounts("cpu=3 memory=6Gi pods=110 hugepages-2Mi=1Gi"),
		Info:        v1.NodeSystemInfo{BootID: "b1"}, Port: 10250,
	}
}

// TestResources: our resources have the present values, dead ones disappear, and foreign ones stay,
// with all of their capacity allocatable.
func TestResources(t *testing.T) {
	old := v1.NodeStatus{
		Capacity: podtest.Amounts("cpu=2 hugepages-1Gi=1Gi gone.io/gpu=4 foreign.io/eni=9 " +
			"attachable-volumes-x=7 own.io/gpu=1"),
		Allocatable: podtest.Amounts("cpu=2 hugepages-1Gi=1Gi gone.io/gpu=4 foreign.io/eni=5 " +
			"odd.io/x=1 own.io/gpu=1"),
	}
	f := facts()
	f.Devices = Devices{
		Capacity: podtest.Amounts("own.io/gpu=8"), Allocatable: podtest.Amounts("own.io/gpu=7"),
		Dead: []v1.ResourceName{"gone.io/gpu"},
	}
	s := Status(old, f, metav1.Now())
	if diff := cmp.Diff("attachable-volumes-x=7 cpu=4 foreign.io/eni=9 hugepages-2Mi=1Gi "+
		"memory=8Gi own.io/gpu=8 pods=110", text(s.Capacity)); diff != "" {
		t.Errorf("capacity, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff("attachable-volumes-x=7 cpu=3 foreign.io/eni=9 hugepages-2Mi=1Gi "+
		"memory=6Gi odd.io/x=1 own.io/gpu=7 pods=110", text(s.Allocatable)); diff != "" {
		t.Errorf("allocatable, -want +got:\n%s", diff)
	}
	if text(old.Capacity) == text(s.Capacity) {
		t.Error("the old status was written to")
	}
}

// line formats a condition.
func line(c v1.NodeCondition) string {
	return string(c.Type) + " " + string(c.Status) + " " + c.Reason + ": " + c.Message
}

func TestConditions(t *testing.T) {
	began := metav1.NewTime(time.Unix(1000, 0))
	others := v1.NodeCondition{Type: "NetworkUnavailable", Status: v1.ConditionFalse}
	s := Status(v1.NodeStatus{Conditions: []v1.NodeCondition{others}}, facts(), began)
	want := []string{
		line(others),
		"MemoryPressure False KubeletHasSufficientMemory: kubelet has sufficient memory available",
		"DiskPressure False KubeletHasNoDiskPressure: kubelet has no disk pressure",
		"PIDPressure False KubeletHasSufficientPID: kubelet has sufficient PID available",
		"Ready True KubeletReady: kubelet is posting ready status",
	}
	got := func(s v1.NodeStatus) (lines []string) {
		for _, c := range s.Conditions {
			lines = append(lines, line(c))
		}
		return lines
	}
	if diff := cmp.Diff(want, got(s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	later := metav1.NewTime(time.Unix(2000, 0))
	f := facts()
	f.Pressure = []v1.NodeConditionType{v1.NodeDiskPressure, v1.NodeMemoryPressure, v1.NodePIDPressure}
	f.NotReady = []string{"container runtime is down"}
	delete(f.Capacity, v1.ResourcePods)
	s = Status(s, f, later)
	want = []string{
		line(others),
		"MemoryPressure True KubeletHasInsufficientMemory: kubelet has insufficient memory available",
		"DiskPressure True KubeletHasDiskPressure: kubelet has disk pressure",
		"PIDPressure True KubeletHasInsufficientPID: kubelet has insufficient PID available",
		"Ready False KubeletNotReady: [container runtime is down, missing node capacity for " +
			"resources: pods]",
	}
	if diff := cmp.Diff(want, got(s)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	f.NotReady[0], f.ShuttingDown = "PLEG is not healthy", true
	s = Status(s, f, metav1.NewTime(time.Unix(3000, 0)))
	ready := s.Conditions[4]
	if want := "[PLEG is not healthy, node is shutting down, missing node capacity for resources: " +
		"pods]"; ready.Message != want {
		t.Errorf("the node is not ready: %s; want %s", ready.Message, want)
	}
	if !ready.LastTransitionTime.Equal(&later) || ready.LastHeartbeatTime.Unix() != 3000 {
		t.Errorf("the transition of a condition with another message was at %v, its heartbeat at %v",
			ready.LastTransitionTime, ready.LastHeartbeatTime)
	}
}

// TestChanged: a heartbeat alone is no change.
func TestChanged(t *testing.T) {
	first := Status(v1.NodeStatus{}, facts(), metav1.NewTime(time.Unix(1, 0)))
	if again := Status(first, facts(), metav1.NewTime(time.Unix(2, 0))); Changed(first, again) {
		t.Errorf("changed: %s", cmp.Diff(first, again))
	}
	for name, change := range map[string]func(*Facts){
		"device":        func(f *Facts) { f.Devices.Capacity = podtest.Amounts("x.io/y=1") },
		"not ready":     func(f *Facts) { f.NotReady = []string{"x"} },
		"shutting down": func(f *Facts) { f.ShuttingDown = true },
		"address":       func(f *Facts) { f.Addresses.All[0].Address = "m" },
		"image":         func(f *Facts) { f.Runtime.Images = []v1.ContainerImage{{SizeBytes: 1}} },
		"boot":          func(f *Facts) { f.Info.BootID = "b2" },
		"volume":        func(f *Facts) { f.VolumesInUse = []v1.UniqueVolumeName{"v"} },
		"feature":       func(f *Facts) { f.DeclaredFeatures = []string{"x"} },
	} {
		f := facts()
		change(&f)
		if !Changed(first, Status(first, f, metav1.Now())) {
			t.Errorf("%s: not changed", name)
		}
	}
	unknown, provided := facts(), facts()
	unknown.Addresses.All = nil
	provided.Addresses.All[0].Address, provided.Addresses.Provided = "m", true
	for name, f := range map[string]Facts{"unknown": unknown, "somebody else's": provided} {
		if s := Status(first, f, metav1.Now()); Changed(first, s) {
			t.Errorf("addresses that are %s were changed to %v", name, s.Addresses)
		}
	}
	if s := Status(v1.NodeStatus{}, provided, metav1.Now()); len(s.Addresses) != 1 {
		t.Errorf("until somebody else sets them the node has %v", s.Addresses)
	}
}

func TestEvents(t *testing.T) {
	reasons := func(events []Event) string {
		var out []string
		for _, e := range events {
			out = append(out, e.Type+" "+e.Reason)
		}
		return strings.Join(out, ", ")
	}
	first := Status(v1.NodeStatus{}, facts(), metav1.Now())
	if got, want := reasons(Events("n", v1.NodeStatus{}, first)), "Normal NodeHasSufficientMemory, "+
		"Normal NodeHasNoDiskPressure, Normal NodeHasSufficientPID, Normal NodeReady"; got != want {
		t.Errorf("a new node: %s", got)
	}
	f := facts()
	f.Info.BootID, f.NotReady = "b2", []string{"x"}
	next := Status(first, f, metav1.Now())
	events := Events("n", first, next)
	if got := reasons(events); got != "Warning Rebooted, Normal NodeNotReady" {
		t.Errorf("rebooted and not ready: %s", got)
	}
	if got := events[0].Message; got != "Node n has been rebooted, boot id: b2" {
		t.Error(got)
	}
	if got := events[1].Message; got != "Node n status is now: NodeNotReady" {
		t.Error(got)
	}
	if got := Events("n", next, next); len(got) > 0 {
		t.Errorf("nothing happened: %v", got)
	}
	if got := Schedulable("n", false).Message; got != "Node n status is now: NodeNotSchedulable" {
		t.Error(got)
	}
}

// A volume stays in use that may be one whose record is lost.
func TestVolumesThatMayBeInUse(t *testing.T) {
	old := v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{"a", "b", "c"}}
	f := Facts{VolumesInUse: []v1.UniqueVolumeName{"d", "b"},
		MayBeInUse: func(name v1.UniqueVolumeName) bool { return name != "a" }}
	want := []v1.UniqueVolumeName{"d", "b", "c"}
	if diff := cmp.Diff(want, Status(old, f, metav1.Now()).VolumesInUse); diff != "" {
		t.Error(diff)
	}
}
