package source

import (
	"fmt"
	"strings"
	"testing"
)

// bomb is a container's environment that doubles with each variable many times over, in few bytes.
func bomb() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[{name: A0, value: %s}", strings.Repeat("x", 100))
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, ", {name: A%d, value: %s}", i, strings.Repeat(fmt.Sprintf("$(A%d)", i-1), 10))
	}
	return b.String() + "]"
}

// many repeats an element of a list in YAML's flow style, with its number for N.
func many(element string, n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.ReplaceAll(element, "N", fmt.Sprint(i)) + ",")
	}
	return b.String()
}

// Whatever a manifest asks for without end is refused by the field that asks for it.
func TestLimits(t *testing.T) {
	const c = `{spec: {containers: [{name: c, image: i, %s}]}}`
	for edit, want := range map[string]string{
		fmt.Sprintf(c, "env: "+bomb()): "spec.containers[0].env[4]: Too long: with variable " +
			`"A4" the environment and the command line are larger than 1 MiB together`,
		fmt.Sprintf(c, "env: "+bomb()[:strings.Index(bomb(), ", {name: A4")]+
			"], args: [a, "+strings.Repeat("$(A3)", 20)+"]"): "spec.containers[0].args[1]: Too long",
		fmt.Sprintf(c, "env: "+bomb()[:strings.Index(bomb(), ", {name: A3")]+
			"], volumeMounts: [{name: v, mountPath: /v, subPathExpr: $(A2)}]"): "spec." +
			"containers[0].volumeMounts[0].subPathExpr: Too long: becomes longer than the 4096 bytes",
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

// As much as is allowed is taken.
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
