package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/numalet/numalet/agent/placement/manifest"
)

// bomb is a short environment that doubles with each of its many variables.
func bomb() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[{name: A0, value: %s}", strings.Repeat("x", 100))
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, ", {name: A%d, value: %s}", i,
			strings.Repeat(fmt.Sprintf("$(A%d)", i-1), 10))
	}
	return b.String() + "]"
}

// many repeats an element of a list in YAML's flow style, with its number in place of N.
func many(element string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(element, "N", fmt.Sprint(i)) + ",")
	}
	return b.String()
}

// Unbounded requests of a manifest are refused, naming the field.
func TestLimits(t *testing.T) {
	const c = `{spec: {containers: [{name: c, image: i, %s}]}}`
	for edit, want := range map[string]string{
		fmt.Sprintf(c, "env: "+bomb()): "spec.containers[0].env[4]: Too long: with variable " +
			`"A4" the environment and the command line are larger than 1 MiB together`,
		fmt.Sprintf(c, "env: "+bomb()[:strings.Index(bomb(), ", {name: A4")]+
			"], args: [a, "+strings.Repeat("$(A3)", 20)+"]"): "spec.containers[0]." +
			"args[1]: Too long",
		fmt.Sprintf(c, "env: "+bomb()[:strings.Index(bomb(), ", {name: A3")]+
			"], volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A2)}]"): "spec." +
			"containers[0].volumeMounts[0].subPathExpr: Too long: becomes longer than the 4096",
		`{spec: {initContainers: [{name: i, image: i, env: ` + bomb() + `}]}}`: "spec." +
			"initContainers[0].env[4]: Too long",
		`{spec: {containers: [` + many("{name: cN, image: i}", 1001) + `]}}`: "spec.containers: " +
			"Too many: 1001: must have at most 1000 items",
		`{spec: {volumes: [` + many("{name: vN}", 1001) + `]}}`: "spec.volumes: Too many: 1001",
		fmt.Sprintf(c, "volumeMounts: ["+many("{name: v, mountPath: /N}", 1001)+"]"): "spec." +
			"containers[0].volumeMounts: Too many: 1001",
		fmt.Sprintf(c, "resources: {limits: {cpu: 1e18}}"): "spec.containers[0].resources." +
			`limits[cpu]: Invalid value: "1E": must be at most 1G`,
		fmt.Sprintf(c, "resources: {requests: {memory: 1e30}}"): "spec.containers[0].resources." +
			`requests[memory]: Invalid value: "1e+30": must be at most 1Pi`,
		fmt.Sprintf(c, "resources: {limits: {a.com/b: 10G}}"): "spec.containers[0].resources." +
			`limits[a.com/b]: Invalid value: "10G": must be at most 1G`,
		fmt.Sprintf(c, "resources: {requests: {memory: 1e1000000000}}"): "spec.containers[0]." +
			"resources.requests.memory: want a quantity",
		fmt.Sprintf(c, "resources: {limits: {cpu: \"12345678901234567890e999999\"}}"): "spec." +
			"containers[0].resources.limits.cpu: want a quantity",
		fmt.Sprintf(c, "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, "+
			"divisor: \"1e-1000000000\"}}}]"): "spec.containers[0].env[0].valueFrom." +
			"resourceFieldRef.divisor: want a quantity",
		fmt.Sprintf(c, "resources: {limits: {cpu: 1, hugepages-1e100: 1}}"): "spec.containers[0]." +
			`resources.limits[hugepages-1e100]: Invalid value: "hugepages-1e100": must end in a page`,
		fmt.Sprintf(c, "resources: {limits: {cpu: 1, hugepages-1e99: 1}}"): "spec.containers[0]." +
			`resources.limits[hugepages-1e99]: Invalid value`,
		fmt.Sprintf(c, "resources: {limits: {cpu: 1, hugepages-1n: 1}}"): "spec.containers[0]." +
			`resources.limits[hugepages-1n]: Invalid value`,
		`{spec: {resources: {limits: {cpu: 1e18}}}}`: "spec.resources.limits[cpu]: Invalid value",
		`{spec: {overhead: {memory: 1e30}}}`:         "spec.overhead[memory]: Invalid value",
		`{spec: {volumes: [{name: v, emptyDir: {sizeLimit: 1e30}}]}}`: "spec.volumes[0].emptyDir." +
			"sizeLimit: Invalid value",
	} {
		_, err := readPod(fromFile, edited(t, edit))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.60s...: %v\nwant %s", edit, err, want)
		}
	}
}

// Manifests at the limits are accepted.
func TestWithinLimits(t *testing.T) {
	for _, edit := range []string{
		`{spec: {containers: [` + many("{name: cN, image: i}", 1000) + `]}}`,
		`{spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1G, memory: 1Pi}}}]}}`,
	} {
		if _, err := readPod(fromFile, edited(t, edit)); err != nil {
			t.Errorf("%.60s...: %v", edit, err)
		}
	}
}

// An answer with too many pods is refused. Of refused pods only the first few are reported one by
// one.
func TestManyPodsOfAnAnswer(t *testing.T) {
	const head = `{"apiVersion": "v1", "kind": "PodList", "items": [`
	_, err := manifest.Decode([]byte(head+many(`{"kind": "Pod"}`, 2001)+"{}]}"), true, false)
	if want := "items: lists 2002 pods; at most 2000 are taken"; errorText(err) != want {
		t.Errorf("%v, want %s", err, want)
	}
	d, err := manifest.Decode([]byte(head+many(`{"metadata": {"name": "B N"}}`, 1999)+"{}]}"), true, false)
	if err != nil {
		t.Fatal(err)
	}
	h := NewHTTP(HTTPConfig{URL: "http://127.0.0.1/pods", Node: "node"})
	if pods := h.accept(d); len(pods) != 0 {
		t.Errorf("%d pods are taken", len(pods))
	}
	reported := h.findings()
	if len(reported) != 11 || reported[10].Message != "1990 more pods of the answer are refused" ||
		reported[9].Name != "http://127.0.0.1/pods items[9]" {
		t.Errorf("%d problems, the last: %+v", len(reported), reported[len(reported)-1])
	}
}

// Only the first few of many errors in one pod are reported.
func TestManyErrors(t *testing.T) {
	_, err := readPod(fromFile, edited(t, `{spec: {hostAliases: [`+many("{ip: xN}", 5000)+`]}}`))
	text := errorText(err)
	if !strings.HasPrefix(text, "spec.hostAliases[0].ip: Invalid value") || len(text) > 450 ||
		!strings.Contains(text, " more") {
		t.Errorf("error %s", text)
	}
}

// Unknown fields are ignored with a report, or refused if configured.
func TestUnknownFields(t *testing.T) {
	for name, text := range map[string]string{
		"unknown": edited(t, `{spec: {restartPolcy: Never}}`),
		"twice":   edited(t, `{}`) + "kind: Pod\n",
	} {
		if d, err := manifest.Decode([]byte(text), false, false); err != nil || len(d.Ignored.First) != 1 {
			t.Errorf("%s: ignored %v, %v", name, d.Ignored, err)
		}
		if _, err := manifest.Decode([]byte(text), false, true); err == nil ||
			!strings.HasPrefix(err.Error(), "--refuse-unknown-fields: ") {
			t.Errorf("%s: %v", name, err)
		}
		m, err := manifest.Read([]byte(text), false, nil)
		if err != nil || len(m.Warnings) != 1 ||
			!strings.HasPrefix(m.Warnings[0], "ignored field: ") {
			t.Errorf("%s: read with %q, %v", name, m.Warnings, err)
		}
		if _, err := manifest.Read([]byte(text), true, nil); err == nil ||
			!strings.HasPrefix(err.Error(), "--refuse-unknown-fields: ") {
			t.Errorf("%s: read: %v", name, err)
		}
	}
}
