package eviction

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

// podWith makes a pod of one container with requests such as "memory=1Gi.. ephemeral-storage=2Gi..".
func podWith(name string, priority int32, requests ...string) *v1.Pod {
	return podtest.New("ns/"+name, podtest.Priority(priority), podtest.Containers("main "+strings.Join(requests, " ")),
		func(p *v1.Pod) { p.CreationTimestamp = metav1.Unix(1000, 0) })
}

// uses are the statistics of a pod: memory and disk in MiB, and processes.
func uses(pod *v1.Pod, memoryMi, diskMi, processes uint64) *statsapi.PodStats {
	disk := &statsapi.FsStats{UsedBytes: ptr.To(diskMi << 20), InodesUsed: ptr.To(diskMi)}
	return &statsapi.PodStats{
		PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)},
		Memory: memory(memoryMi<<20, 0), EphemeralStorage: disk,
		ProcessStats: &statsapi.ProcessStats{ProcessCount: &processes},
		Containers: []statsapi.ContainerStats{{Name: "main", Memory: memory(memoryMi<<20, 0),
			Rootfs: disk}},
	}
}

func names(all []Candidate) string {
	var out []string
	for _, c := range all {
		out = append(out, c.Pod.Name)
	}
	return strings.Join(out, " ")
}

func TestRank(t *testing.T) {
	all := []Candidate{}
	add := func(pod *v1.Pod, memory, disk, processes uint64, exclusive bool) {
		all = append(all, Candidate{pod, uses(pod, memory, disk, processes), exclusive, Beyond{}})
	}
	add(podWith("within", 0, "memory=1Gi.. ephemeral-storage=1Gi.."), 900, 900, 1, false)
	add(podWith("over-a-little", 0, "memory=1Gi.."), 1100, 0, 2, false)
	add(podWith("over-much", 0, "memory=100Mi.."), 500, 1, 3, false)
	add(podWith("over-important", 100, "memory=100Mi.."), 1000, 5, 4, false)
	add(podWith("low", -5, "memory=1Gi.."), 10, 0, 5, false)
	add(podWith("idle", -9, "memory=1Gi.."), 0, 0, 0, false)
	add(podWith("critical", 2_000_000_000), 5000, 5000, 5000, false)
	static := podWith("static", 0)
	podtest.Source("file")(static)
	add(static, 5000, 5000, 5000, false)
	all = append(all, Candidate{Pod: podWith("unknown", 50)})
	for signal, want := range map[Signal]string{
		MemoryAvailable:  "unknown over-much over-a-little over-important idle low within",
		NodeFSAvailable:  "unknown over-much over-important idle low within over-a-little",
		NodeFSInodesFree: "unknown within over-much over-important idle low over-a-little",
		PIDAvailable:     "unknown idle low over-much over-a-little within over-important",
	} {
		if got := names(rank(all, signal, layout{}, 0)); got != want {
			t.Errorf("%s: %s\nwant %s", signal, got, want)
		}
	}
}

// Among equals, and only there, pods with devices or CPUs of their own come last, and of the others the
// youngest first.
func TestRankEquals(t *testing.T) {
	old, young, gpu := podWith("old", 0), podWith("young", 0), podWith("gpu", 0)
	young.CreationTimestamp = metav1.NewTime(old.CreationTimestamp.Add(time.Minute))
	all := []Candidate{{gpu, uses(gpu, 10, 0, 1), true, Beyond{}}, {old, uses(old, 10, 0, 1), false, Beyond{}},
		{young, uses(young, 10, 0, 1), false, Beyond{}}}
	if got := names(rank(all, MemoryAvailable, layout{}, 0)); got != "young old gpu" {
		t.Errorf("equal pods: %s; want young old gpu", got)
	}
	all[0].Stats = uses(gpu, 11, 0, 1)
	if got := names(rank(all, MemoryAvailable, layout{}, 0)); got != "gpu young old" {
		t.Errorf("one uses more: %s; want gpu young old", got)
	}
}

// TestRankInVain: of the pods that would go, those stay whose end the others make needless.
func TestRankInVain(t *testing.T) {
	type pod struct {
		name     string
		priority int32
		request  string
		uses     uint64
		Beyond
	}
	few := []pod{{name: "a", uses: 5}, {name: "b", uses: 5}, {name: "c", uses: 5}}
	with := func(more ...pod) []pod { return append(slices.Clone(few), more...) }
	for name, tc := range map[string]struct {
		pods []pod
		need int64 // MiB
		want string
	}{
		"the most first":              {with(pod{name: "hog", uses: 200}), 10, "hog a b c"},
		"a more important hog":        {with(pod{name: "hog", priority: 1, uses: 200}), 100, "hog a b c"},
		"... that need not go at all": {with(pod{name: "hog", priority: 1, uses: 200}), 15, "a b c hog"},
		"... beside one pod too many": {with(pod{name: "hog", priority: 1, uses: 200}), 16, "hog a b c"},
		"a hog within its request": {with(pod{name: "hog", request: "ephemeral-storage=1Gi..", uses: 200}), 16,
			"hog a b c"},
		"two hogs, of which both have to go": {with(pod{name: "x", priority: 1, uses: 60},
			pod{name: "y", priority: 2, uses: 60}), 100, "x a b c y"},
		"not even all are enough": {with(pod{name: "hog", priority: 1, uses: 200}), 216, "a b c hog"},
		"one of which not all is known": {with(pod{name: "odd", uses: 1, Beyond: Beyond{Partial: true}},
			pod{name: "hog", uses: 200}), 100, "hog odd a b c"},
		"one of which not all is known, and no other can have it": {
			with(pod{name: "odd", uses: 1, Beyond: Beyond{Partial: true}}), 100, "odd a b c"},
		"one that holds deleted files": {with(pod{name: "hog", Beyond: Beyond{
			Node: Held{Bytes: 200 << 20}}}), 100, "hog a b c"},
		"one that holds deleted files of its layer": {with(pod{name: "hog", Beyond: Beyond{
			Layers: Held{Bytes: 200 << 20}}}), 100, "hog a b c"},
		"one that wrote since": {with(pod{name: "hog", Beyond: Beyond{Grown: 200 << 20}}), 100,
			"hog a b c"},
	} {
		var all []Candidate
		for _, p := range tc.pods {
			made := podWith(p.name, p.priority, p.request)
			all = append(all, Candidate{made, uses(made, 0, p.uses, 1), false, p.Beyond})
		}
		if got := names(rank(all, NodeFSAvailable, layout{}, tc.need<<20)); got != tc.want {
			t.Errorf("%s: %s; want %s", name, got, tc.want)
		}
	}
}

// Where writable layers are on a filesystem of their own, they do not count for the node's.
func TestDiskLayouts(t *testing.T) {
	pod := podWith("p", 0)
	stats := uses(pod, 0, 0, 0)
	stats.Containers[0].Rootfs = &statsapi.FsStats{UsedBytes: ptr.To[uint64](30)}
	stats.EphemeralStorage = &statsapi.FsStats{UsedBytes: ptr.To[uint64](100)} // with the layer
	held := Beyond{Node: Held{Bytes: 60}, Layers: Held{Bytes: 30}, Grown: 10}
	for _, tc := range []struct {
		signal Signal
		layout layout
		want   int64
	}{
		{NodeFSAvailable, layout{}, 100},
		{NodeFSAvailable, layout{images: true, containers: true}, 70},
		{NodeFSAvailable, layout{images: true}, 100},
		{ImageFSAvailable, layout{images: true, containers: true}, 30},
		{ImageFSAvailable, layout{images: true}, 0},
		{ContainerFSAvailable, layout{images: true, containers: true}, 30},
	} {
		if got := disk(stats, tc.signal, tc.layout, bytes); got != tc.want {
			t.Errorf("%s with %+v: %d; want %d", tc.signal, tc.layout, got, tc.want)
		}
		if got := held.on(tc.signal, tc.layout); got != tc.want {
			t.Errorf("%s with %+v: %d in deleted files; want %d", tc.signal, tc.layout, got, tc.want)
		}
	}
}

func TestWords(t *testing.T) {
	pod := podWith("p", 0, "memory=100Mi.. ephemeral-storage=1Gi..")
	podtest.Containers("side", "debug?")(pod) // an ephemeral container cannot request anything
	stats := uses(pod, 150, 10, 3)
	stats.Containers = append(stats.Containers,
		statsapi.ContainerStats{Name: "debug", Memory: memory(9<<20, 0)},
		statsapi.ContainerStats{Name: "side", Memory: memory(7<<20, 0)})
	c := &Candidate{Pod: pod, Stats: stats}
	limit := &Threshold{Signal: MemoryAvailable}
	limit.Value.Quantity = resource.MustParse("100Mi")
	got := wordsOf(c, limit, Reading{99 << 20, 1 << 30})
	if want := "The node was low on resource: memory. Threshold quantity: 100Mi, available: 99Mi. " +
		"Container main was using 150Mi, request is 100Mi, has larger consumption of memory. " +
		"Container side was using 7Mi, request is 0, has larger consumption of memory. "; got.Message != want {
		t.Errorf("memory: %q\nwant %q", got.Message, want)
	}
	if a := got.Annotations; a["starved_resource"] != "memory" || a["offending_containers"] != "main,side" ||
		a["offending_containers_usage"] != "150Mi,7Mi" {
		t.Errorf("annotations are %v", a)
	}
	podtest.Resources("memory=200Mi..")(pod)
	got = wordsOf(c, limit, Reading{99 << 20, 1 << 30})
	if a := got.Annotations; a["offending_pod"] != "p" || a["offending_pod_usage"] != "150Mi" ||
		!strings.Contains(got.Message, "available: 99Mi. Pod p was using 150Mi, request is 200Mi, has larger "+
			"consumption of memory. Container main ") {
		t.Errorf("with requests of the pod's own: %q, %v", got.Message, a)
	}
	if got := wordsOf(&Candidate{Pod: pod}, limit, Reading{99 << 20, 1 << 30}); len(got.Annotations) > 0 ||
		strings.Contains(got.Message, "using") {
		t.Errorf("nothing is known of the pod: %q, %v", got.Message, got.Annotations)
	}
	limit.Signal = NodeFSAvailable
	c.Node, c.Layers = Held{Bytes: 300 << 20}, Held{Bytes: 50<<20 + 1}
	if got := wordsOf(c, limit, Reading{99 << 20, 1 << 30}); !strings.HasSuffix(got.Message,
		"The pod holds deleted files of 350Mi. ") {
		t.Errorf("deleted files are held: %q", got.Message)
	}
	c.Node, c.Layers = Held{}, Held{}
	for i, want := range []string{"", "Container main was using 1Gi, request is 1Gi"} {
		// A container's use of the disk is known when its logs are measured too.
		stats.Containers[0].Rootfs = &statsapi.FsStats{UsedBytes: ptr.To[uint64](1 << 30)}
		stats.Containers[0].Logs = []*statsapi.FsStats{nil, {UsedBytes: ptr.To[uint64](1)}}[i]
		got := wordsOf(c, limit, Reading{1, 2})
		if _, has := got.Annotations["offending_pod"]; has || strings.Contains(got.Message, "Container") !=
			(want != "") {
			t.Errorf("disk: %q, %v", got.Message, got.Annotations)
		}
	}
	limit.Signal = NodeFSInodesFree
	if got := wordsOf(c, limit, Reading{1, 2}); strings.Contains(got.Message, "Container") {
		t.Errorf("inodes: %q", got.Message)
	}
	limit.Signal = PIDAvailable
	limit.Value.Quantity = resource.MustParse("5k")
	if got, want := wordsOf(c, limit, Reading{4000, 9000}).Message, "The node was low on resource: pids. "+
		"Threshold quantity: 5k, available: 4k. "; got != want {
		t.Errorf("pids: %q\nwant %q", got, want)
	}
}
