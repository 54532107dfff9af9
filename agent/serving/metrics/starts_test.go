package metrics

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// fresh returns the metrics of an agent that has just started, and their registry.
func fresh(t *testing.T) (*Metrics, metrics.KubeRegistry) {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	m, err := New(Config{Registry: registry, Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	return m, registry
}

func mustGather(t *testing.T, r metrics.KubeRegistry) []*testutil.MetricFamily {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// seconds returns the sums of the named histograms, which have no labels.
func seconds(t *testing.T, r metrics.KubeRegistry, names ...string) (out []float64) {
	t.Helper()
	families := mustGather(t, r)
	for _, name := range names {
		for _, f := range families {
			if f.GetName() == name {
				out = append(out, f.GetMetric()[0].GetHistogram().GetSampleSum())
			}
		}
	}
	return out
}

func testPod(volumes ...v1.Volume) *v1.Pod {
	return podtest.New("p", podtest.UID("u"), podtest.Containers("init!", "a", "b"),
		func(p *v1.Pod) { p.Spec.Volumes = volumes })
}

func runs(since time.Time) v1.ContainerStatus {
	return v1.ContainerStatus{State: v1.ContainerState{
		Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(since)},
	}}
}

// A pod waits 1 s, pulls for 4 s, initializes for 2 s, and its containers run after 8 s and 10 s.
func TestPodStarts(t *testing.T) {
	hostPath := v1.Volume{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{}}}
	emptyDir := v1.Volume{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
	for name, tc := range map[string]struct {
		pod  *v1.Pod
		ran  bool       // it already has a sandbox when first seen
		want [4]float64 // running, all run, the indicator, the worker
	}{
		"new":          {testPod(emptyDir), false, [4]float64{8, 10, 4, 1}},
		"with a state": {testPod(hostPath), false, [4]float64{8, 10, 0, 1}},
		"adopted":      {testPod(), true, [4]float64{0, 0, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, registry := fresh(t)
				status := v1.PodStatus{Phase: v1.PodPending}
				write := func(after v1.PodStatus) {
					m.Status(podstatus.Change{Pod: tc.pod, Before: status, After: after})
					status = after
				}
				m.Status(podstatus.Change{Pod: tc.pod, After: status})
				time.Sleep(time.Second)
				report := podworker.Report{Pod: tc.pod, Begun: time.Now()}
				if tc.ran {
					report.Observed.Sandboxes = []cri.Sandbox{{}}
				}
				m.Round(report)
				m.Pulled(cri.Pull{Pod: "u", Took: 4 * time.Second, Size: 1})
				time.Sleep(7 * time.Second)
				first := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
					runs(time.Now()), {},
				}, InitContainerStatuses: []v1.ContainerStatus{{State: v1.ContainerState{
					Terminated: &v1.ContainerStateTerminated{
						StartedAt:  metav1.NewTime(time.Now().Add(-3 * time.Second)),
						FinishedAt: metav1.NewTime(time.Now().Add(-time.Second)),
					},
				}}}}
				write(first)
				time.Sleep(2 * time.Second)
				all := *first.DeepCopy()
				all.ContainerStatuses[1] = runs(time.Now())
				write(all)
				write(first)
				write(all) // a container that runs again is no start
				got := seconds(t, registry, "kubelet_pod_start_duration_seconds",
					"kubelet_pod_start_total_duration_seconds",
					"kubelet_pod_start_sli_duration_seconds",
					"kubelet_pod_worker_start_duration_seconds")
				if [4]float64(got) != tc.want {
					t.Errorf("started in %v s, want %v", got, tc.want)
				}
				want := 4.
				if tc.ran {
					want = 0
				}
				for _, f := range mustGather(t, registry) {
					if f.GetName() == "kubelet_first_network_pod_start_sli_duration_seconds" &&
						f.GetMetric()[0].GetGauge().GetValue() != want {
						t.Errorf("of the first pod %v, want %v", f.GetMetric(), want)
					}
				}
				if len(m.starts.pods) > 0 {
					t.Error("a pod that has started is remembered")
				}
			})
		})
	}
}

// Pods that will not start are dropped.
func TestPodThatDoesNotStartIsForgotten(t *testing.T) {
	pending := v1.PodStatus{Phase: v1.PodPending}
	for name, after := range map[string]v1.PodStatus{
		"forgotten": {}, "rejected": {Phase: v1.PodFailed},
	} {
		m, _ := fresh(t)
		m.Status(podstatus.Change{Pod: testPod(), After: pending})
		m.Status(podstatus.Change{Pod: testPod(), Before: pending, After: after})
		m.Pulled(cri.Pull{Pod: "u"})
		if len(m.starts.pods) > 0 {
			t.Errorf("a pod that was %s is remembered", name)
		}
	}
}

// A worker is busy from the start of a round until nothing is left to do, with one operation after
// the other. Where the pod is counted depends on what is desired.
func TestRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := fresh(t)
		action, pod, changed := &podworker.Action{}, testPod(), testPod()
		removed := &podworker.Stop{Remove: true}
		for _, r := range []podworker.Report{
			{Pod: pod, Decision: podworker.Decision{State: podworker.SyncPod, Action: action}},
			{Pod: pod, Decision: podworker.Decision{State: podworker.SyncPod}}, // create: 2 s
			{Pod: pod, Decision: podworker.Decision{State: podworker.SyncPod}}, // sync: 1 s
			{Pod: changed, Decision: podworker.Decision{State: podworker.SyncPod, Action: action}},
			{Pod: changed, Decision: podworker.Decision{State: podworker.SyncPod}}, // update: 2 s
			{Pod: changed, Stop: removed, Decision: podworker.Decision{
				State: podworker.TerminatingPod, Action: action}}, // kill: 1 s
			{Pod: changed, Stop: removed, Decision: podworker.Decision{
				State: podworker.TerminatedPod, Action: action}},
			{Pod: changed, Stop: removed, Decision: podworker.Decision{
				State: podworker.Finished}}, // terminated: 2 s
		} {
			r.Begun = time.Now()
			time.Sleep(time.Second)
			m.Round(r)
		}
		busy := func() (out string) {
			for _, f := range mustGather(t, registry) {
				if f.GetName() != "kubelet_pod_worker_duration_seconds" {
					continue
				}
				for _, one := range f.GetMetric() {
					out += one.GetLabel()[0].GetValue() + " " +
						time.Duration(one.GetHistogram().GetSampleSum()*1e9).String() + " "
				}
			}
			return out
		}
		if got := busy(); got != "create 2s kill 1s sync 1s terminated 2s update 2s " {
			t.Errorf("the worker was busy with %s", got)
		}
		const line = `kubelet_working_pods{config="orphan",lifecycle="terminated",static="true"} `
		for _, want := range []string{"1", "0"} {
			value, err := testutil.GetGaugeMetricValue(
				m.rounds.working.WithLabelValues("terminated", "orphan", "true"))
			if err != nil || (value == 1) != (want == "1") {
				t.Errorf("%s%v (%v), want %s", line, value, err, want)
			}
			m.Gone("u")
		}
		orphaned := podworker.Report{Pod: pod, Stop: &podworker.Stop{Orphan: true, Remove: true},
			Decision: podworker.Decision{State: podworker.TerminatingPod, Action: action}}
		orphaned.Observed.Sandboxes = []cri.Sandbox{{}}
		for range 2 { // two rounds of one pod
			m.Round(orphaned)
		}
		if n, err := testutil.GetCounterMetricValue(m.pods.orphaned); err != nil || n != 1 {
			t.Errorf("%v orphans are counted (%v), want 1", n, err)
		}
		value, err := testutil.GetGaugeMetricValue(
			m.rounds.working.WithLabelValues("terminating", "runtime_only", "unknown"))
		if err != nil || value != 1 {
			t.Errorf("%v pods of the runtime only are ended (%v), want 1", value, err)
		}
	})
}

func TestSizeLabel(t *testing.T) {
	var got []string
	for _, size := range []uint64{0, 1, 10 << 20, 10<<20 + 1, 1 << 30, 5 << 30, 1 << 40} {
		got = append(got, sizeLabel(size))
	}
	want := "N/A 0-10MB 0-10MB 10MB-100MB 500MB-1GB 1GB-5GB GT100GB"
	if strings.Join(got, " ") != want {
		t.Errorf("sizes are in %q, want %q", got, want)
	}
}

// For a pod of the API server the creation counts, and the time at which the API server has all
// containers running. Its phase is measured when seen here.
func TestPodOfTheAPIServerStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, registry := fresh(t)
		pod := testPod()
		pod.Spec.InitContainers = nil
		podtest.Source(podspec.APISource)(pod)
		pod.CreationTimestamp = metav1.Now()
		time.Sleep(time.Second)
		pending := v1.PodStatus{Phase: v1.PodPending}
		m.Status(podstatus.Change{Pod: pod, After: pending})
		time.Sleep(2 * time.Second)
		running := v1.PodStatus{Phase: v1.PodRunning, ContainerStatuses: []v1.ContainerStatus{
			runs(time.Now()), runs(time.Now())}}
		m.Status(podstatus.Change{Pod: pod, Before: pending, After: running})
		time.Sleep(4 * time.Second)
		m.Delivered([]*v1.Pod{pod}) // it is behind
		time.Sleep(8 * time.Second)
		delivered := pod.DeepCopy()
		delivered.Status = running
		for range 2 {
			m.Delivered([]*v1.Pod{delivered})
		}
		got := seconds(t, registry, "kubelet_pod_start_duration_seconds",
			"kubelet_pod_start_total_duration_seconds", "kubelet_pod_start_sli_duration_seconds")
		if !slices.Equal(got, []float64{2, 15, 15}) {
			t.Errorf("measured %v s", got)
		}
	})
}
