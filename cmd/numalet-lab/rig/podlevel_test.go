package rig

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// asked writes what a pod and its containers ask for: "cpu 2..4" is a request and a limit.
func asked(pod *v1.Pod) string {
	of := func(name string, r v1.ResourceRequirements) string {
		for _, resource := range slices.Sorted(maps.Keys(r.Requests)) {
			request, limit := r.Requests[resource], r.Limits[resource]
			name += fmt.Sprintf(" %s %s..%s", resource, request.String(), limit.String())
		}
		return name
	}
	var out []string
	if r := pod.Spec.Resources; r != nil {
		out = append(out, of("pod", *r))
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		out = append(out, of(c.Name, c.Resources))
	}
	return strings.Join(out, "; ")
}

// TestPodResources: what a pod asks for as a whole is completed and refused as an API server does.
func TestPodResources(t *testing.T) {
	s := small(t)
	for _, test := range []struct{ spec, want string }{
		{`{limits: {cpu: 2, memory: 25%}}, containers: [{}, {}]`,
			"pod cpu 2..2 memory 4Gi..4Gi; main-0; main-1"},
		{`{limits: {cpu: 50%}}, containers: [{limits: {cpu: 1, memory: 1Gi}}]`, // the request is the containers'
			"pod cpu 1..2 memory 1Gi..1Gi; main-0 cpu 1..1 memory 1Gi..1Gi"},
		{`{requests: {cpu: 2}, limits: {cpu: 2}}, containers: [{limits: {cpu: 1, memory: 1Gi}}, {limits: {memory: 1Gi}}]`,
			"pod cpu 2..2 memory 2Gi..2Gi; main-0 cpu 1..1 memory 1Gi..1Gi; main-1 memory 1Gi..1Gi"},
		{`{requests: {cpu: 1}, limits: {cpu: 2}}, containers: [{}]`, "pod cpu 1..2; main-0"},
		{`{}, containers: [{}]`, "main-0"},
		{`{limits: {gpu: 1}}, containers: [{}]`,
			"error: resources: example.com/gpu: a pod as a whole asks for cpu, memory and huge pages only"},
		{`{limits: {cpu: many}}, containers: [{}]`, `error: resources: limits: cpu: "many" is no amount`},
		{`{requests: {memory: -1}}, containers: [{}]`, "error: resources: requests: memory: -1 is negative"},
		{`{limits: {cpu: 1}, requests: {cpu: 2}}, containers: [{}]`,
			"error: resources: the request of cpu, 2, is more than the limit, 1"},
		{`{limits: {cpu: 2}}, containers: [{limits: {cpu: 2}}, {limits: {cpu: 500m}}]`,
			"error: resources: limits: cpu: 2 is less than its containers request together, 2500m"},
		{`{requests: {memory: 1Gi}}, initContainers: [{requests: {memory: 2Gi}}], containers: [{}]`,
			"error: resources: requests: memory: 1Gi is less than its containers request together, 2Gi"},
		{`{limits: {cpu: 2}}, containers: [{}, {limits: {cpu: 3}, requests: {cpu: 1}}]`,
			"error: resources: limits: cpu: 2 is less than the limit of containers[1], 3"},
		{`{requests: {cpu: 1, hugepages-2Mi: 2Mi}, limits: {hugepages-2Mi: 4Mi}}, containers: [{}]`,
			"error: resources: hugepages-2Mi: huge pages cannot be overcommitted, so that the limit, 4Mi, is the " +
				"request, 2Mi"},
		{`{claims: [a]}, containers: [{}]`, `error: unknown field "resources.claims"`},
	} {
		mix, err := ParseMix([]byte("templates: [{name: a, lifetime: 1h, resources: " + test.spec + "}]"))
		got := ""
		if err == nil {
			var shape Shape
			if shape, err = s.shape("a", mix.Templates[0].PodSpec); err == nil {
				got = asked(shape.Pod)
			}
		}
		if err != nil {
			got = "error: " + strings.ReplaceAll(err.Error(), `"templates[0].`, `"`)
		}
		if got != test.want && (!strings.HasPrefix(test.want, "error") || !strings.HasPrefix(got, test.want)) {
			t.Errorf("%s:\ngot  %s\nwant %s", test.spec, got, test.want)
		}
	}
}

// TestPodResourcesInTraces: a manifest says the same as the short form, and is refused for the same.
func TestPodResourcesInTraces(t *testing.T) {
	s := small(t)
	const short, long = `{"at": 1, "arrive": "a", "resources": {"limits": {"cpu": 2, "memory": "4Gi"}}, ` +
		`"containers": [{}]}`,
		`{"at": 1, "arrive": "a", "manifest": {"spec": {"resources": {"limits": {"cpu": "2", "memory": "4Gi"}}, ` +
			`"containers": [{"name": "main-0"}]}}}`
	for _, text := range []string{short, long} {
		stream, err := s.ReadTrace(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := asked(stream.Shapes[0].Pod); got != "pod cpu 2..2 memory 4Gi..4Gi; main-0" ||
			stream.Shapes[0].Name != "cpu 2, memory 4Gi" {
			t.Errorf("%s: %s: %s", text, stream.Shapes[0].Name, got)
		}
	}
	for of, want := range map[string]string{
		`"manifest": {"spec": {"resources": {"limits": {"cpu": "1"}}, "containers": [{"name": "a", "resources": ` +
			`{"limits": {"cpu": "2"}}}]}}`: "manifest: spec.resources: limits: cpu: 1 is less than its containers",
		`"manifest": {"spec": {"resources": {"limits": {"cpu": "1"}, "claims": [{"name": "x"}]}, "containers": ` +
			`[{"name": "a"}]}}`: "manifest: spec.resources: claims: only containers use claims",
		`"resources": {"limits": {"cpu": 1}}, "manifest": {"spec": {"containers": [{"name": "a"}]}}`: "both containers or",
	} {
		_, err := s.ReadTrace(strings.NewReader(`{"at": 1, "arrive": "a", ` + of + "}"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one of %s", of, err, want)
		}
	}
}

// pooledPods has a template, and sizes of it.
var pooledPods = pooledPod(`"template": "p"`, "3", "4Gi") + pooledPod(`"template": "p", "size": "p"`, "3", "4Gi") +
	pooledPod(`"template": "p", "size": "more"`, "4", "4Gi") +
	pooledPod(`"template": "p", "size": "memory"`, "3", "5Gi")

// pooledPod writes a pod that asks for this as a whole.
func pooledPod(name, cpu, memory string) string {
	all := fmt.Sprintf(`{"cpu": %s, "memory": %q}`, cpu, memory)
	return fmt.Sprintf(`{%s, "resources": {"limits": %s, "requests": %s}, "initContainers": [{}], `+
		`"containers": [{"limits": {"cpu": 1, "memory": "1Gi", "gpu": 1}}, {}]}`+"\n", name, all, all)
}

// TestPooledSizes: multiples apply to the pod as a whole, which covers what its containers then ask for; a
// size changes nothing else of it.
func TestPooledSizes(t *testing.T) {
	s := small(t)
	for _, test := range []struct {
		spec, want string
		factor     float64
	}{
		{`{limits: {cpu: 3, memory: 4Gi}}, containers: [{}]`, "pod cpu 2..2 memory 2Gi..2Gi; main-0", 0.5},
		{`{limits: {cpu: 4}, requests: {cpu: 3}}, containers: [{limits: {cpu: 1}, requests: {cpu: 500m}}]`,
			"pod cpu 1500m..2; main-0 cpu 250m..500m", 0.5},
		// each of three containers keeps a CPU, so that the pod keeps three
		{`{limits: {cpu: 4}, requests: {cpu: 4}}, containers: [{limits: {cpu: 1, memory: 1001Mi}}, ` +
			`{limits: {cpu: 1, memory: 1001Mi}}, {limits: {cpu: 1, memory: 1001Mi}}]`,
			"pod cpu 3..3 memory 1503Mi..1503Mi; main-0 cpu 1..1 memory 501Mi..501Mi; " +
				"main-1 cpu 1..1 memory 501Mi..501Mi; main-2 cpu 1..1 memory 501Mi..501Mi", 0.5},
		// init containers that end keep what they ask for
		{`{limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 2}}, initContainers: [{limits: {memory: 2Gi}}], containers: [{}]`,
			"pod cpu 1..1 memory 2Gi..2Gi; init-0 memory 2Gi..2Gi; main-0", 0.5},
	} {
		mix, err := ParseMix([]byte("templates: [{name: a, lifetime: 1h, resources: " + test.spec + "}]"))
		if err != nil {
			t.Fatal(err)
		}
		shape, err := s.shape("a", mix.Templates[0].PodSpec)
		if err != nil {
			t.Fatal(err)
		}
		before := asked(shape.Pod)
		size := (&ResizeSpec{To: []float64{test.factor}}).sizes(shape, 0)[1]
		if got := asked(size.Pod); got != test.want {
			t.Errorf("%s x%v:\ngot  %s\nwant %s", test.spec, test.factor, got, test.want)
		}
		if err := errors.Join(shape.checkSize(size.Shape), checkWhole(size.Pod)); err != nil || asked(shape.Pod) != before {
			t.Errorf("%s: %v; the template asks for %s now", test.spec, err, asked(shape.Pod))
		}
	}
	for line, want := range map[string]string{
		`"resources": {"limits": {"cpu": 3, "memory": "4Gi"}}, "containers": [{}, {}]`: "more than cpu and memory",
		`"initContainers": [{}], "containers": [{"limits": {"gpu": 1}}, {}]`:           "QoS class",
		`"resources": {"limits": {"cpu": 1, "hugepages-2Mi": "2Mi", "memory": "1Gi"}}, "initContainers": [{}], ` +
			`"containers": [{"limits": {"gpu": 1}}, {}]`: "more than cpu and memory",
		`"resources": {"limits": {"cpu": 1}}, "containers": [{"limits": {"cpu": 2}}]`: "less than its containers request",
	} {
		_, err := s.ReadTrace(strings.NewReader(pooledPods + `{"size": "x", "template": "p", ` + line + "}"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v; want one of %s", line, err, want)
		}
	}
}
