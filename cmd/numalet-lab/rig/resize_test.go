package rig

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology"
)

const elastic = `
{"template": "web", "containers": [{"requests": {"cpu": 2}, "limits": {"cpu": 8}}]}
{"size": "web", "template": "web", "containers": [{"requests": {"cpu": 2}, "limits": {"cpu": 8}}]}
{"size": "half", "template": "web", "containers": [{"requests": {"cpu": 1}, "limits": {"cpu": 4}}]}
{"size": "twice", "template": "web", "containers": [{"requests": {"cpu": 4}, "limits": {"cpu": 16}}]}
`

// to writes the resizes of a pod in a trace.
func to(resizes ...string) string {
	var out []string
	for _, r := range resizes {
		after, size, _ := strings.Cut(r, " ")
		out = append(out, fmt.Sprintf(`{"after": %s, "size": %q}`, after, size))
	}
	return `"resizes": [` + strings.Join(out, ", ") + `]`
}

// Pods grow if there is room, and when others give some back; what they give back others get that wait for a
// place.
func TestResizeStories(t *testing.T) {
	for name, test := range map[string]struct {
		trace, want string
		wait        time.Duration
	}{
		"room": {
			trace: `{"at": 0, "arrive": "a", "template": "web",` + to("10 twice", "20 half") + `}
{"at": 30, "arrive": "b", "template": "web"}`,
			want: `0s pod 1 admitted
10s pod 1 resized
20s pod 1 resized
30s pod 2 admitted`,
		},
		"deferred until another shrinks": {
			trace: `{"at": 0, "arrive": "a", "template": "web",` + to("10 twice", "40 half") + `}
{"at": 0, "arrive": "b", "template": "web",` + to("20 twice") + `}
{"at": 50, "arrive": "c", "template": "web"}`,
			want: `0s pod 1 admitted
0s pod 2 admitted
10s pod 1 resized
20s pod 2 deferred: Deferred OutOfcpu
40s pod 1 resized
40s pod 2 resized
50s pod 3 admitted`,
		},
		"deferred until another leaves, ahead of a pod that waits": {
			wait: time.Hour,
			trace: `{"at": 0, "arrive": "a", "template": "web", "lifetime": 60}
{"at": 0, "arrive": "b", "template": "web", "lifetime": 80,` + to("20 twice") + `}
{"at": 0, "arrive": "c", "template": "web"}
{"at": 10, "arrive": "d", "template": "web",` + to("30 web") + `}
{"at": 100, "arrive": "e", "template": "web"}`,
			want: `0s pod 1 admitted
0s pod 2 admitted
0s pod 3 admitted
10s pod 4 waits: OutOfcpu cpu
20s pod 2 deferred: Deferred OutOfcpu
1m0s pod 1 left
1m0s pod 2 resized
1m20s pod 2 left
1m20s pod 4 admitted
1m40s pod 5 admitted`,
		},
		"withdrawn": {
			trace: `{"at": 0, "arrive": "a", "template": "web"}
{"at": 0, "arrive": "b", "template": "web"}
{"at": 0, "arrive": "c", "template": "web", "lifetime": 50,` +
				to("10 twice", "20 web", "90 half") + `}
{"at": 100, "arrive": "d", "template": "web"}`,
			want: `0s pod 1 admitted
0s pod 2 admitted
0s pod 3 admitted
10s pod 3 deferred: Deferred OutOfcpu
50s pod 3 left
1m40s pod 4 admitted`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := story(t, "single-numa-node", elastic+test.trace, test.wait); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// What is counted is what the decisions add up to, and no more is requested than there is. The mix has pods
// with exclusive CPUs and memory, and the checks of what they get run as in every run.
func TestResizesAddUp(t *testing.T) {
	s := site(t, "playground")
	stream := drawn(t, s, "elastic", Draw{Pods: 300, Seed: 5})
	for _, p := range policies(t, "none/restricted+cpu-none/cpu-static,single-numa-node+memory-static") {
		sum := sumOfResizes{
			stream: stream, room: s.Allocatable, has: map[int]v1.ResourceList{}, seen: map[string]int{},
		}
		o, err := Run(t.Context(), s, p, stream, Options{Follow: sum.follow})
		if err != nil {
			t.Fatal(err)
		}
		z, deferred := o.Resizes, 0
		for _, r := range z.Reasons {
			if r.Reason == v1.PodReasonDeferred {
				deferred += r.Count
			}
		}
		done := sum.seen[Resized]
		if z.Asked != sum.asked || z.AtOnce+z.Later != done || z.Grown+z.Shrunk != done ||
			z.Asked != z.AtOnce+z.Later+z.Unchanged+z.Infeasible+z.Replaced+z.Left+z.Waiting ||
			deferred < z.Later+z.Replaced+z.Left+z.Waiting {
			t.Errorf("%s: %+v; %d were asked for, decided %v", p.Name, z, sum.asked, sum.seen)
		}
		if z.Later == 0 || z.MeanDelay <= 0 || z.Shrunk == 0 || z.Grown == 0 {
			t.Errorf("%s: too little happened: %+v", p.Name, z)
		}
	}
}

// sumOfResizes counts resizes by what follows from the stream and the decisions.
type sumOfResizes struct {
	stream Stream
	room   v1.ResourceList
	has    map[int]v1.ResourceList // by arrival
	seen   map[string]int          // by decision
	asked  int
}

func (c *sumOfResizes) follow(d Decision) error {
	c.seen[d.Kind]++
	a := c.stream.Arrivals[d.Arrival]
	switch d.Kind {
	case Admitted:
		c.has[d.Arrival] = allocation.Requests(nil, c.stream.Shapes[a.Shape].Pod, topology.Rules{})
		for _, r := range a.Resizes { // without a wait, the pod was admitted when it came
			c.asked += count(a.At+r.After <= c.stream.end())
		}
	case Resized:
		to := a.Resizes[0]
		for _, r := range a.Resizes {
			if a.At+r.After <= d.At {
				to = r
			}
		}
		c.has[d.Arrival] = allocation.Requests(nil, c.stream.Sizes[to.Size].Pod, topology.Rules{})
	case Left:
		delete(c.has, d.Arrival)
	}
	sum := v1.ResourceList{}
	for _, r := range c.has {
		sum = allocation.AddRequests(sum, r)
	}
	for name, q := range sum {
		if most := c.room[name]; q.Cmp(most) > 0 {
			return fmt.Errorf("after %+v pods request %s of %s", d, q.String(), name)
		}
	}
	return nil
}

// The pods of a mix are the same with and without resizes, and a resize keeps the QoS class and what
// it does not change.
func TestSizes(t *testing.T) {
	s := site(t, "playground")
	mix, err := OpenMix("elastic")
	if err != nil {
		t.Fatal(err)
	}
	with, err := s.Generate(mix, Draw{Pods: 200, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range mix.Templates {
		mix.Templates[i].Resizes = nil
	}
	without, err := s.Generate(mix, Draw{Pods: 200, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	resized := 0
	for i, a := range with.Arrivals {
		resized += len(a.Resizes)
		if a.Resizes = nil; !reflect.DeepEqual(a, without.Arrivals[i]) {
			t.Fatalf("pod %d is %+v and without resizes %+v", i, a, without.Arrivals[i])
		}
	}
	if resized < 200 {
		t.Errorf("200 pods are resized %d times", resized)
	}
	for _, size := range with.Sizes {
		if err := with.Shapes[size.Of].checkSize(size.Shape); err != nil {
			t.Errorf("%s: %v", size.Name, err)
		}
	}
}

// A resize changes only containers that run on, and in whole CPUs and MiB.
func TestMultiples(t *testing.T) {
	s := site(t, "playground")
	spec := PodSpec{
		InitContainers: []ContainerSpec{{Limits: map[string]Text{"cpu": "8", "memory": "1Gi"}}},
		Containers:     []ContainerSpec{{Limits: map[string]Text{"cpu": "3", "memory": "1001Mi", "gpu": "2"}}},
	}
	shape, err := s.shape("a", spec)
	if err != nil {
		t.Fatal(err)
	}
	half := (&ResizeSpec{To: []float64{0.5}}).sizes(shape, 0)[1]
	if got := describe(half.Shape); half.Name != "a x0.5" || got != "cpu 8, memory 1Gi, nvidia.com/gpu 2" {
		t.Errorf("%s: %s", half.Name, got)
	}
	if c := half.Pod.Spec.Containers[0].Resources; c.Limits.Cpu().String() != "2" ||
		c.Requests.Memory().String() != "501Mi" {
		t.Errorf("the container asks for %v", c)
	}
	if got := shape.Pod.Spec.Containers[0].Resources.Limits.Cpu().String(); got != "3" {
		t.Errorf("the template asks for %s CPUs now", got)
	}
}

// What cannot be resized so is refused, with what is wrong.
func TestBadResizes(t *testing.T) {
	s := small(t)
	for want, text := range map[string]string{
		"every is missing":    `{to: [2]}`,
		"to lists the sizes":  `{every: 1h}`,
		"is 1":                `{every: 1h, to: [1]}`,
		"there twice":         `{every: 1h, to: [2, 2]}`,
		"not above 0":         `{every: 1h, to: [0]}`,
		"stays as it is":      `{every: 1h, to: [2], of: [gpu]}`,
		`distribution "x" is`: `{every: {mean: 1h, distribution: x}, to: [2]}`,
		"resizes.sizes":       `{every: 1h, sizes: [2]}`,
	} {
		_, err := ParseMix([]byte("templates: [{name: a, lifetime: 1h, containers: [{limits: {cpu: 1}}], resizes: " +
			text + "}]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one of %s", text, err, want)
		}
	}
	for want, line := range map[string]string{
		`template "x"`: `{"size": "a", "template": "x", "containers": [{"limits": {"cpu": 1}}]}`,
		"QoS class":    `{"size": "a", "template": "web", "containers": [{"limits": {"cpu": 1, "memory": "1Gi"}}]}`,
		"more than cpu": `{"size": "a", "template": "web", "containers": [` +
			`{"limits": {"cpu": 1, "gpu": 1}, "requests": {"cpu": "1m"}}]}`,
		"there twice":     `{"size": "half", "template": "web", "containers": [{"requests": {"cpu": 2}}]}`,
		`size "big"`:      `{"at": 0, "arrive": "a", "template": "web",` + to("1 big") + `}`,
		"of its template": `{"at": 0, "arrive": "a", "containers": [{"limits": {"cpu": 1}}],` + to("1 half") + `}`,
		"sort them":       `{"at": 0, "arrive": "a", "template": "web",` + to("2 half", "1 web") + `}`,
		`"after" is -1`:   `{"at": 0, "arrive": "a", "template": "web",` + to("-1 half") + `}`,
	} {
		_, err := s.ReadTrace(strings.NewReader(elastic + line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one of %s", line, err, want)
		}
	}
}
