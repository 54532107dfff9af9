package rig

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/discover"
)

// small is a site of two nodes with four CPUs each, CPU 0 reserved; node 1 has two GPUs.
func small(t *testing.T) *Site {
	t.Helper()
	m, err := discover.ParseYAML(strings.NewReader(`
name: small
nodes:
- {id: 0, cpus: "0-3", memory: 16Gi, distances: {0: 10, 1: 21}}
- {id: 1, cpus: "4-7", memory: 16Gi, distances: {0: 21, 1: 10}}
`))
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSite(SiteConfig{Machine: m, Devices: []string{"gpu=2@1"}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// story replays a trace and returns its decisions, one on each line.
func story(t *testing.T, policy, trace string, wait time.Duration) string {
	t.Helper()
	s := small(t)
	stream, err := s.ReadTrace(strings.NewReader(trace))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	_, err = Run(t.Context(), s, policies(t, policy)[0], stream, Options{
		Wait: wait, Follow: func(d Decision) error {
			line := fmt.Sprintf("%v pod %d %s", d.At, d.Arrival+1, d.Kind)
			if d.Reason.Reason != "" {
				line += fmt.Sprintf(": %s %s", d.Reason.Reason, d.Reason.Of)
			}
			for _, h := range d.Held {
				if h.CPUs != "" {
					line += " cpus " + h.CPUs
				}
				for _, ids := range h.Devices {
					line += " " + strings.Join(ids, ",")
				}
				for _, ids := range h.Claims {
					line += " claims " + strings.Join(ids, ",")
				}
			}
			lines = append(lines, strings.TrimSpace(line))
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

const crowd = `at,pod,lifetime,cpu,memory,gpu
0,a,,4,1Gi,1
1,b,10,3,1Gi,
2,c,5,4,1Gi,
3,d,5,4,1Gi,
4,e,5,1,1Gi,1
20,a,depart,,,
30,f,1,1,1Gi,`

func TestRun(t *testing.T) {
	for name, test := range map[string]struct {
		policy string
		wait   time.Duration
		want   string
	}{
		"without a wait": {
			policy: "single-numa-node",
			want: `0s pod 1 admitted cpus 4-7 gpu-0
1s pod 2 admitted cpus 1-3
2s pod 3 rejected: TopologyAffinityError cpu
3s pod 4 rejected: TopologyAffinityError cpu
4s pod 5 rejected: TopologyAffinityError cpu
11s pod 2 left cpus 1-3
20s pod 1 left cpus 4-7 gpu-0
30s pod 6 admitted cpus 1`,
		},
		// Pods 3 and 4 want all of node 1; pod 5 gets one of its GPUs as soon as pod 3 has left.
		"with a wait": {
			policy: "single-numa-node", wait: time.Minute,
			want: `0s pod 1 admitted cpus 4-7 gpu-0
1s pod 2 admitted cpus 1-3
2s pod 3 waits: TopologyAffinityError cpu
3s pod 4 waits: TopologyAffinityError cpu
4s pod 5 waits: TopologyAffinityError cpu
11s pod 2 left cpus 1-3
20s pod 1 left cpus 4-7 gpu-0
20s pod 3 admitted cpus 4-7
25s pod 3 left cpus 4-7
25s pod 4 admitted cpus 4-7
30s pod 4 left cpus 4-7
30s pod 5 admitted cpus 4 gpu-0
30s pod 6 admitted cpus 1`,
		},
		"waiting ends": {
			policy: "single-numa-node", wait: 17 * time.Second,
			want: `0s pod 1 admitted cpus 4-7 gpu-0
1s pod 2 admitted cpus 1-3
2s pod 3 waits: TopologyAffinityError cpu
3s pod 4 waits: TopologyAffinityError cpu
4s pod 5 waits: TopologyAffinityError cpu
11s pod 2 left cpus 1-3
19s pod 3 rejected: TopologyAffinityError cpu
20s pod 1 left cpus 4-7 gpu-0
20s pod 4 rejected: TopologyAffinityError cpu
20s pod 5 admitted cpus 4 gpu-0
25s pod 5 left cpus 4 gpu-0
30s pod 6 admitted cpus 1`,
		},
		"spread": {
			policy: "none",
			want: `0s pod 1 admitted cpus 4-7 gpu-0
1s pod 2 admitted cpus 1-3
2s pod 3 rejected: UnexpectedAdmissionError cpu
3s pod 4 rejected: UnexpectedAdmissionError cpu
4s pod 5 rejected: UnexpectedAdmissionError cpu
11s pod 2 left cpus 1-3
20s pod 1 left cpus 4-7 gpu-0
30s pod 6 admitted cpus 1`,
		},
		"CPUs are shared": {
			policy: "cpu-none",
			want: `0s pod 1 admitted gpu-0
1s pod 2 admitted
2s pod 3 rejected: OutOfcpu cpu
3s pod 4 rejected: OutOfcpu cpu
4s pod 5 rejected: OutOfcpu cpu
11s pod 2 left
20s pod 1 left gpu-0
30s pod 6 admitted`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := story(t, test.policy, crowd, test.wait); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// The choice among equally good nodes for small pods decides whether a large one fits afterwards.
func TestStrategiesLeaveRoom(t *testing.T) {
	const trace = `at,pod,lifetime,cpu,memory,gpu
0,a,,1,1Gi,
1,b,,1,1Gi,
2,c,,4,1Gi,`
	for policy, want := range map[string]string{
		"single-numa-node+packed": "0s pod 1 admitted cpus 1\n1s pod 2 admitted cpus 2\n" +
			"2s pod 3 admitted cpus 4-7",
		"single-numa-node+spread": "0s pod 1 admitted cpus 4\n1s pod 2 admitted cpus 1\n" +
			"2s pod 3 rejected: TopologyAffinityError cpu",
	} {
		if got := story(t, policy, trace, 0); got != want {
			t.Errorf("%s: got\n%s\nwant\n%s", policy, got, want)
		}
	}
}

// A plan that breaks a rule ends the run.
func TestBrokenPlans(t *testing.T) {
	s := small(t)
	shape, err := s.shape("a", PodSpec{Containers: []ContainerSpec{
		{Limits: map[string]Text{"cpu": "2", "memory": "1Gi", "gpu": "1"}},
		{Limits: map[string]Text{"cpu": "1", "memory": "1Gi"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	gpu := func(ids ...string) []allocation.DeviceSet {
		return []allocation.DeviceSet{{Resource: "example.com/gpu", IDs: ids}}
	}
	plan := func(first, second allocation.Container) allocation.Plan {
		return allocation.Plan{Pod: allocation.Pod{Containers: map[string]allocation.Container{
			"main-0": first, "main-1": second,
		}}}
	}
	for name, test := range map[string]struct {
		plan allocation.Plan
		want string // "": a good plan
	}{
		"good": {plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(4, 5)), allocation.Devices(gpu("gpu-1"))},
			allocation.Container{allocation.CPUs(cpuset.New(6))})},
		"reserved CPU": {want: "CPU 0", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(0, 5)), allocation.Devices(gpu("gpu-1"))},
			allocation.Container{allocation.CPUs(cpuset.New(6))})},
		"taken CPU": {want: "CPU 2", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(2, 5)), allocation.Devices(gpu("gpu-1"))},
			allocation.Container{allocation.CPUs(cpuset.New(6))})},
		"CPU that is not there": {want: "CPU 99", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(4, 99)), allocation.Devices(gpu("gpu-1"))},
			allocation.Container{allocation.CPUs(cpuset.New(6))})},
		"taken device": {want: "gpu-0", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(4, 5)), allocation.Devices(gpu("gpu-0"))},
			allocation.Container{allocation.CPUs(cpuset.New(6))})},
		"device that is not there": {want: "gpu-9", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(4, 5)), allocation.Devices(gpu("gpu-9"))},
			allocation.Container{allocation.CPUs(cpuset.New(6))})},
		"too many devices": {want: "asked for 1", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(4, 5)), allocation.Devices(gpu("gpu-0", "gpu-1"))},
			allocation.Container{allocation.CPUs(cpuset.New(6))})},
		"no device": {want: "asked for 1", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(4, 5))},
			allocation.Container{allocation.CPUs(cpuset.New(6))})},
		"too few CPUs": {want: "asked for 1", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(4, 5)), allocation.Devices(gpu("gpu-1"))},
			allocation.Container{})},
		"containers share": {want: "of another one", plan: plan(
			allocation.Container{allocation.CPUs(cpuset.New(4, 5)), allocation.Devices(gpu("gpu-1"))},
			allocation.Container{allocation.CPUs(cpuset.New(5))})},
	} {
		w, err := newWorld(s, policies(t, "none")[0])
		if err != nil {
			t.Fatal(err)
		}
		w.setIdle(cpuset.New(2), false)
		w.room.Taken = w.room.Taken.With(allocation.DeviceIDs{"example.com/gpu": sets.New("gpu-0")})
		l := newLots([]Shape{shape}, w.room.View)[0]
		err = w.admit(1, l, test.plan)
		if test.want == "" && err != nil || test.want != "" && (err == nil ||
			!strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

// The sum over all pods detects errors in what was updated step by step.
func TestBooksThatDiffer(t *testing.T) {
	s := small(t)
	shape, err := s.shape("a", PodSpec{Containers: []ContainerSpec{
		{Limits: map[string]Text{"cpu": "2", "memory": "1Gi", "gpu": "1"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*world){
		"": func(*world) {},
		"CPUs": func(w *world) {
			w.room.Taken = w.room.Taken.With(allocation.CPUs(w.room.Taken.CPUs().Union(cpuset.New(7))))
		},
		"gpu":  func(w *world) { w.room.Taken.Devices()["example.com/gpu"].Insert("gpu-1") },
		"cpu":  func(w *world) { delete(w.room.Others[0], v1.ResourceCPU) },
		"free": func(w *world) { w.setIdle(cpuset.New(7), false) },
	} {
		w, err := newWorld(s, policies(t, "none")[0])
		if err != nil {
			t.Fatal(err)
		}
		l := newLots([]Shape{shape}, w.room.View)[0]
		plan, err := w.roomOf(l, nil).Plan(l.Pod, nil)
		if err == nil {
			err = w.admit(0, l, plan)
		}
		if err != nil {
			t.Fatal(err)
		}
		spoil(w)
		if err := w.check(); (err == nil) != (name == "") {
			t.Errorf("%q spoilt: %v", name, err)
		}
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	s := small(t)
	stream := drawn(t, s, "cpu-only", Draw{Pods: 10, Seed: 1})
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := Run(ctx, s, policies(t, "none")[0], stream, Options{}); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
}

// Times come from the clock, and nothing else depends on it.
func TestTiming(t *testing.T) {
	s := small(t)
	stream := drawn(t, s, "cpu-only", Draw{Pods: 100, Seed: 1})
	now := time.Duration(0)
	timed, err := Run(t.Context(), s, policies(t, "none")[0], stream, Options{
		Clock: func() time.Duration { now += 3 * time.Microsecond; return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	got := timed.Timing
	if got.Decisions != 100 || got.P50 != 3 || got.Max != 3 || got.Mean != 3 ||
		!slices.Equal(got.Histogram, []int{0, 0, 100}) {
		t.Errorf("timing: %+v", got)
	}
	timed.Timing = nil
	plain, err := Run(t.Context(), s, policies(t, "none")[0], stream, Options{})
	if err != nil || asJSON(plain) != asJSON(timed) {
		t.Errorf("%v\n%s\n%s", err, asJSON(plain), asJSON(timed))
	}
}

// An interrupted run measures the same as a run of only the pods that had arrived.
func TestInterruptedRun(t *testing.T) {
	s := site(t, "playground")
	stream := drawn(t, s, "training", Draw{Pods: 3 * progressEvery, Seed: 3})
	first := Stream{Shapes: stream.Shapes, Arrivals: stream.Arrivals[:2*progressEvery]}
	p := policies(t, "best-effort+memory-static")[0]
	want, err := Run(t.Context(), s, p, first, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got, err := Run(ctx, s, p, stream, Options{Progress: func(n int) {
		if n == len(first.Arrivals) {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("the error is %v", err)
	}
	if n := len(got.Series.Lines[0].Values); n <= parts/2 || n >= parts {
		t.Errorf("%d parts of time", n)
	}
	for i := range want.Resources {
		a, b := got.Resources[i], want.Resources[i]
		if diff := a.Used - b.Used; diff > 2e-4 || diff < -2e-4 || a.Resource != b.Resource {
			t.Errorf("%s used %v, want %v", a.Resource, a.Used, b.Used)
		}
	}
	got.Resources, got.Series = want.Resources, want.Series
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\ngot  %s\nwant %s", asJSON(got), asJSON(want))
	}
	cancel()
	if none, err := Run(ctx, s, p, stream, Options{}); err == nil || none.Pods.Arrived != 0 {
		t.Errorf("a context that had ended: %v, %s", err, asJSON(none))
	}
}

// A small init container does not keep the pod off the only node with room.
func TestInitContainersGoWithWhatFollows(t *testing.T) {
	const trace = `{"template": "t", "initContainers": [{"limits": {"cpu": 1, "memory": "1Gi"}}], ` +
		`"containers": [{"limits": {"cpu": 3, "memory": "1Gi"}}]}
{"at": 0, "arrive": "a", "containers": [{"limits": {"cpu": 1, "memory": "1Gi"}}]}
{"at": 1, "arrive": "b", "template": "t"}
{"at": 2, "arrive": "c", "template": "t"}`
	got := story(t, "single-numa-node", trace, 0)
	const want = `0s pod 1 admitted cpus 1
1s pod 2 admitted cpus 4 cpus 4-6
2s pod 3 rejected: TopologyAffinityError cpu`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
