package source

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// What is set for the pod as a whole is completed as an API server does. With the gate this gives limits
// too, where all containers have some.
func TestPodResourcesAreCompleted(t *testing.T) {
	const container = "spec: {resources: POD, containers: [" +
		"{name: a, image: i, resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}}, " +
		"{name: b, image: i, resources: {limits: {cpu: 2}}}]}"
	for pod, want := range map[string][2]string{ // without and with the gate
		"{requests: {cpu: 1}}": {"requests: {cpu: 1}",
			"limits: {cpu: 3}, requests: {cpu: 1, memory: 1Gi}"},
		"{requests: {cpu: 4}}": {"requests: {cpu: 4}",
			"limits: {cpu: 4}, requests: {cpu: 4, memory: 1Gi}"},
		"{limits: {memory: 2Gi}}": {"limits: {memory: 2Gi}, requests: {cpu: 2500m, memory: 1Gi}",
			"limits: {cpu: 3, memory: 2Gi}, requests: {cpu: 2500m, memory: 1Gi}"},
	} {
		for i, gate := range []bool{false, true} {
			o := fromFile
			o.gates = func(name string) bool { return gate && name == "PodLevelResourcesFixDefaulting" }
			p, err := readPod(o, "{apiVersion: v1, kind: Pod, metadata: {name: p}, "+
				strings.Replace(container, "POD", pod, 1)+"}")
			if err != nil {
				t.Errorf("%s, gate %t: %v", pod, gate, err)
				continue
			}
			var wanted any
			if err := yaml.Unmarshal([]byte("{"+want[i]+"}"), &wanted); err != nil {
				t.Fatal(err)
			}
			got, _ := yaml.Marshal(p.Spec.Resources)
			raw, _ := yaml.Marshal(wanted)
			if normal(t, got) != normal(t, raw) {
				t.Errorf("%s, gate %t:\n%swant\n%s", pod, gate, got, raw)
			}
		}
	}
}

// normal returns YAML whose quantities are all texts.
func normal(t *testing.T, raw []byte) string {
	t.Helper()
	return strings.ReplaceAll(string(raw), "\"", "")
}

// A user namespace beside the host's network, and tolerations that compare numbers, need their gates.
func TestGatesOfManifests(t *testing.T) {
	const head, tail = "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {", ", containers: [{name: a, image: i}]}}"
	for spec, gate := range map[string]string{
		"hostNetwork: true, hostUsers: false":                                     "UserNamespacesHostNetworkSupport",
		"tolerations: [{key: k, operator: Gt, value: \"5\", effect: NoSchedule}]": "TaintTolerationComparisonOperators",
	} {
		for _, on := range []bool{false, true} {
			o := fromFile
			o.gates = func(name string) bool { return on && name == gate }
			if _, err := readPod(o, head+spec+tail); (err == nil) != on {
				t.Errorf("%s, gate %t: %v", spec, on, err)
			}
		}
	}
	o := fromFile
	o.gates = func(string) bool { return true }
	for _, spec := range []string{"hostPID: true, hostUsers: false",
		"tolerations: [{key: k, operator: Gt, value: many}]"} {
		if _, err := readPod(o, head+spec+tail); err == nil {
			t.Errorf("%s is taken", spec)
		}
	}
}
