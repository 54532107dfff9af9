package source

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/topology/podspec"
)

var fromFile = origin{node: "Node-1", source: FileSource, place: "/m/a.yaml"}

// readPod decodes a manifest and turns it into a pod.
func readPod(o origin, text string) (*v1.Pod, error) {
	d, err := manifest.Decode([]byte(text), false, false)
	if err != nil {
		return nil, err
	}
	return &d.Pods[0], o.pod(&d.Pods[0])
}

// TestDefaults compares the pairs in testdata: NAME.in.yaml as written, NAME.out.yaml as stored.
func TestDefaults(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatal(err, inputs)
	}
	for _, in := range inputs {
		text, err := os.ReadFile(in)
		if err != nil {
			t.Fatal(err)
		}
		pod, err := readPod(fromFile, string(text))
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		got, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(strings.TrimSuffix(in, ".in.yaml") + ".out.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", in, diff)
		}
	}
}

// TestUID: the same content at the same place on the same node has the same UID, even after an
// upgrade of the agent. The literal must not change.
func TestUID(t *testing.T) {
	uid := func(o origin, text string) types.UID {
		t.Helper()
		pod, err := readPod(o, text)
		if err != nil {
			t.Fatal(err)
		}
		return pod.UID
	}
	text := manifestOf("a")
	base := uid(fromFile, text)
	if want := types.UID("c4514ad3edab86ba8d0b5cca3f251fee"); base != want {
		t.Errorf("UID %s, want %s", base, want)
	}
	if again := uid(fromFile, "# a comment\n"+text+"\n"); again != base {
		t.Error("a comment changed the UID")
	}
	others := map[types.UID]string{base: "base"}
	for name, other := range map[string]types.UID{
		"content": uid(fromFile, manifestOf("b")),
		"node":    uid(origin{node: "n2", source: FileSource, place: "/m/a.yaml"}, text),
		"path":    uid(origin{node: "Node-1", source: FileSource, place: "/m/b.yaml"}, text),
		"url":     uid(origin{node: "Node-1", source: HTTPSource, place: "/m/a.yaml"}, text),
	} {
		if same, ok := others[other]; ok {
			t.Errorf("%s has the UID of %s", name, same)
		}
		others[other] = name
	}
	got := uid(fromFile,
		"metadata: {uid: mine, name: a}\n"+strings.Replace(text, "metadata: {name: a}\n", "", 1))
	if got != "mine" {
		t.Errorf("UID %s, want the one that is written", got)
	}
}

// TestRefused changes a good pod slightly and expects the exact error.
func TestRefused(t *testing.T) {
	tests := []edit{
		{`{metadata: {name: ""}}`, "metadata.name: Required value: give the pod a name"},
		{`{metadata: {namespace: A/B}}`,
			"metadata.namespace: Invalid value: \"A/B\": a lowercase RFC 1123 label"},
		{`{metadata: {uid: ../../etc}}`,
			"metadata.uid: Invalid value: \"../../etc\": must be letters"},
		{`{metadata: {labels: {"a b": c}}}`, "metadata.labels: Invalid value: \"a b\""},
		{`{metadata: {annotations: {"a b": c}}}`, "metadata.annotations: Invalid value: \"a b\""},
		{`{spec: {containers: []}}`, "spec.containers: Required value: a pod needs at least one"},
		{`{spec: {restartPolicy: Sometimes}}`,
			`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", ` +
				`"OnFailure", "Never"`},
		{`{spec: {dnsPolicy: None}}`,
			"spec.dnsConfig.nameservers: Required value: dnsPolicy None needs at least one"},
		{`{spec: {terminationGracePeriodSeconds: -1}}`,
			"spec.terminationGracePeriodSeconds: Invalid value: -1: must be 0 to"},
		{`{spec: {activeDeadlineSeconds: 0}}`,
			"spec.activeDeadlineSeconds: Invalid value: 0: must be 1 to"},
		{`{spec: {priority: 2000000000}}`, "spec.priority: Forbidden: above 1000000000 needs"},
		{`{spec: {hostname: a.b}}`, `spec.hostname: Invalid value: "a.b"`},
		{`{spec: {ephemeralContainers: [{name: e, image: i}]}}`,
			"spec.ephemeralContainers: Forbidden"},
		{`{spec: {schedulingGates: [{name: x}]}}`, "spec.schedulingGates: Forbidden"},
		{`{spec: {tolerations: [{effect: NoSchedule}]}}`,
			"spec.tolerations[0].operator: Invalid value: \"\": must be Exists when key is empty"},
		{`{spec: {hostAliases: [{ip: x}]}}`,
			`spec.hostAliases[0].ip: Invalid value: "x": must be an IP address`},
		{`{spec: {hostPID: true, shareProcessNamespace: true}}`,
			"spec.shareProcessNamespace: Forbidden"},
		{`{spec: {hostNetwork: true, hostUsers: false}}`, "spec.hostUsers: Forbidden"},
		{`{spec: {securityContext: {runAsUser: -1}}}`,
			"spec.securityContext.runAsUser: Invalid value: -1: must be 0 to 2147483647"},
		{`{spec: {securityContext: {sysctls: [{name: "a b"}]}}}`,
			"spec.securityContext.sysctls[0].name: Invalid value"},
		{`{spec: {securityContext: {sysctls: [{name: a.b}, {name: a/b}]}}}`,
			`spec.securityContext.sysctls[1].name: Duplicate value: "a/b"`},
		{`{spec: {securityContext: {seccompProfile: {type: Localhost}}}}`,
			"spec.securityContext.seccompProfile.localhostProfile: Required value"},
		{`{spec: {securityContext: {seccompProfile: {type: Localhost, localhostProfile: ../x}}}}`,
			"must not contain '..'"},

		{`{spec: {containers: [{name: c_1, image: i}]}}`,
			`spec.containers[0].name: Invalid value: "c_1"`},
		{`{spec: {containers: [{name: c, image: i}, {name: c, image: i}]}}`,
			`spec.containers[1].name: Duplicate value: "c"`},
		{`{spec: {initContainers: [{name: c, image: i}]}}`,
			`spec.containers[0].name: Duplicate value: "c"`},
		{`{spec: {containers: [{name: c}]}}`,
			"spec.containers[0].image: Required value: name the image to run"},
		{`{spec: {containers: [{name: c, image: " i"}]}}`,
			"spec.containers[0].image: Invalid value"},
		{`{spec: {initContainers: [{name: i, image: i, livenessProbe: {exec: {command: [a]}}}]}}`,
			"spec.initContainers[0].livenessProbe: Forbidden"},
		{`{spec: {containers: [{name: c, image: i, livenessProbe: {}}]}}`,
			"spec.containers[0].livenessProbe: Invalid value: \"\": must have exactly one of"},
		{`{spec: {containers: [{name: c, image: i, imagePullPolicy: Often}]}}`,
			`spec.containers[0].imagePullPolicy: Unsupported value: "Often"`},
		{`{spec: {containers: [{name: c, image: i, ports: [{containerPort: 0}]}]}}`,
			"spec.containers[0].ports[0].containerPort: Invalid value: 0: must be 1 to 65535"},
		{`{spec: {containers: [{name: c, image: i, ports: [{containerPort: 1, name: a}, ` +
			`{containerPort: 2, name: a}]}]}}`,
			`spec.containers[0].ports[1].name: Duplicate value: "a"`},
		{`{spec: {containers: [{name: c, image: i, ports: [{containerPort: 1, hostPort: 5}, ` +
			`{containerPort: 2, hostPort: 5}]}]}}`,
			"spec.containers[0].ports[1].hostPort: Duplicate value: 5"},
		{`{spec: {hostNetwork: true, containers: [{name: c, image: i, ports: [{containerPort: 1, ` +
			`hostPort: 5}]}]}}`,
			"spec.containers[0].ports[0].hostPort: Invalid value: 5: must equal containerPort " +
				"with hostNetwork"},
		{`{spec: {containers: [{name: c, image: i, env: [{name: "A=B"}]}]}}`,
			`spec.containers[0].env[0].name: Invalid value: "A=B"`},
		{`{spec: {containers: [{name: c, image: i, env: [{name: A, ` +
			`valueFrom: {fieldRef: {fieldPath: spec.foo}}}]}]}}`,
			`spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Unsupported value: ` +
				`"spec.foo"`},
		{`{spec: {containers: [{name: c, image: i, env: [{name: A, ` +
			`valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]}]}}`,
			`fieldPath: Unsupported value: "metadata.labels"`},
		{`{spec: {containers: [{name: c, image: i, env: [{name: A, value: x, ` +
			`valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]}}`,
			"valueFrom: Invalid value: \"\": may not be used when value is set"},
		{`{spec: {containers: [{name: c, image: i, env: [{name: A, ` +
			`valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]}]}}`,
			"resourceFieldRef.resource: Invalid value"},
		{`{spec: {containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /v}]}]}}`,
			`spec.containers[0].volumeMounts[0].name: Not found: "v"`},
		{`{spec: {volumes: [{name: v}], containers: [{name: c, image: i, ` +
			`volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /v/}]}]}}`,
			`spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/v/": must be unique`},
		{`{spec: {volumes: [{name: v}], containers: [{name: c, image: i, ` +
			`volumeMounts: [{name: v, mountPath: /v, subPath: a/../..}]}]}}`,
			"subPath: Invalid value: \"a/../..\": must not contain '..'"},
		{`{spec: {volumes: [{name: v}], containers: [{name: c, image: i, ` +
			`volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]}]}}`,
			"mountPropagation: Forbidden: Bidirectional needs a privileged container"},
		{`{spec: {containers: [{name: c, image: i, securityContext: {privileged: true, ` +
			`allowPrivilegeEscalation: false}}]}}`,
			"allowPrivilegeEscalation: Invalid value: false"},

		{`{spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 2}, ` +
			`limits: {cpu: 1}}}]}}`,
			`spec.containers[0].resources.requests[cpu]: Invalid value: "2": must be less than ` +
				`or equal to cpu limit of 1`},
		{`{spec: {containers: [{name: c, image: i, resources: {limits: {cpu: -1}}}]}}`,
			`spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must not be negative`},
		{`{spec: {containers: [{name: c, image: i, resources: {limits: {gpu: 1}}}]}}`,
			`spec.containers[0].resources.limits[gpu]: Invalid value: "gpu": must be cpu`},
		{`{spec: {containers: [{name: c, image: i, resources: {limits: {example.com/gpu: 1.5}}}]}}`,
			`spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "1500m": must ` +
				`be an integer`},
		{`{spec: {containers: [{name: c, image: i, resources: {requests: {example.com/gpu: 1}}}]}}`,
			`spec.containers[0].resources.limits[example.com/gpu]: Required value: must be given ` +
				`and equal`},
		{`{spec: {containers: [{name: c, image: i, resources: {requests: {example.com/gpu: 1}, ` +
			`limits: {example.com/gpu: 2}}}]}}`,
			`spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "1": must be ` +
				`equal to the limit of 2`},
		{`{spec: {containers: [{name: c, image: i, resources: {limits: {hugepages-2Mi: 4Mi}}}]}}`,
			"spec.containers[0].resources.limits: Forbidden: huge pages need a request for cpu " +
				"or memory"},
		{`{spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1, ` +
			`hugepages-2Mi: 3Mi}}}]}}`,
			`limits[hugepages-2Mi]: Invalid value: "3Mi": must be a multiple of the page size 2Mi`},
		{`{spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 1, ` +
			`hugepages-x: 3Mi}}}]}}`,
			`limits[hugepages-x]: Invalid value: "hugepages-x": must end in a page size`},

		{`{spec: {volumes: [{name: v}, {name: v}]}}`, `spec.volumes[1].name: Duplicate value: "v"`},
		{`{spec: {volumes: [{name: v, emptyDir: {}, hostPath: {path: /x}}]}}`,
			"spec.volumes[0]: Forbidden: may not have more than one type"},
		{`{spec: {volumes: [{name: v, hostPath: {path: /x/../y}}]}}`,
			"spec.volumes[0].hostPath.path: Invalid value: \"/x/../y\": must not contain '..'"},
		{`{spec: {volumes: [{name: v, hostPath: {path: /x, type: Fifo}}]}}`,
			`spec.volumes[0].hostPath.type: Unsupported value: "Fifo"`},
		{`{spec: {volumes: [{name: v, emptyDir: {medium: Disk}}]}}`,
			`spec.volumes[0].emptyDir.medium: Unsupported value: "Disk"`},
		{`{spec: {volumes: [{name: v, downwardAPI: {items: [{path: /abs, ` +
			`fieldRef: {fieldPath: metadata.name}}]}}]}}`,
			"downwardAPI.items[0].path: Invalid value: \"/abs\": must be a relative path"},

		{`{spec: {serviceAccountName: x}}`, "static pods may not reference serviceaccounts"},
		{`{spec: {imagePullSecrets: [{name: x}]}}`, "static pods may not reference secrets"},
		{`{spec: {resourceClaims: [{name: x}]}}`, "static pods may not reference resourceclaims"},
		{`{spec: {containers: [{name: c, image: i, envFrom: [{configMapRef: {name: x}}]}]}}`,
			"static pods may not reference configmaps"},
		{`{spec: {containers: [{name: c, image: i, env: [{name: A, ` +
			`valueFrom: {secretKeyRef: {name: x, key: z}}}]}]}}`,
			"static pods may not reference secrets"},
		{`{spec: {volumes: [{name: v, configMap: {name: x}}]}}`,
			"static pods may not reference configmaps"},
		{`{spec: {volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]}}`,
			"static pods may not reference persistentvolumeclaims"},
		{`{spec: {volumes: [{name: v, csi: {driver: x}}]}}`,
			"static pods may not reference csidrivers"},
		{`{spec: {volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: x}}]}}]}}`,
			"static pods may not reference serviceaccounts"},
	}
	refused(t, tests)
	if _, err := readPod(fromFile, edited(t, `{}`)); err != nil {
		t.Errorf("the pod without an edit: %v", err)
	}
}

// edited returns a good pod with the first and second-level fields of edit.
func edited(t *testing.T, edit string) string {
	t.Helper()
	base := map[string]map[string]any{}
	good := "metadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n"
	for _, text := range []string{good, edit} {
		var layer map[string]map[string]any
		if err := yaml.Unmarshal([]byte(text), &layer); err != nil {
			t.Fatal(edit, err)
		}
		for top, fields := range layer {
			if base[top] == nil {
				base[top] = map[string]any{}
			}
			for key, value := range fields {
				base[top][key] = value
			}
		}
	}
	out, err := yaml.Marshal(base)
	if err != nil {
		t.Fatal(err)
	}
	return "apiVersion: v1\nkind: Pod\n" + string(out)
}

func TestWarnings(t *testing.T) {
	d, err := manifest.Decode(
		[]byte(manifestOf("a")+"Spec: {}\nspec: {containers: [], restartPolcy: Never}\n"),
		false, false)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		`given twice, the last one is used: line 6: key "spec" already set in map`,
		`Spec: unknown field; did you mean "spec"?`,
		`spec.restartPolcy: unknown field; did you mean "restartPolicy"?`,
	}
	if diff := cmp.Diff(want, d.Ignored.First); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLocalFieldsAreOurs(t *testing.T) {
	pod, err := readPod(fromFile, edited(t,
		`{metadata: {annotations: {kubernetes.io/config.mirror: x, mine: z}},
status: {phase: Running}, spec: {nodeName: other}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"mine": "z", podspec.AnnotationHash: string(pod.UID),
		AnnotationManifest: string(pod.UID)}
	if diff := cmp.Diff(want, pod.Annotations); diff != "" {
		t.Errorf("annotations:\n%s", diff)
	}
	if pod.Status.Phase != v1.PodPending || pod.Spec.NodeName != "Node-1" ||
		pod.Name != "a-node-1" {
		t.Errorf("phase %s, node %s, name %s", pod.Status.Phase, pod.Spec.NodeName, pod.Name)
	}
	if pod.Spec.SecurityContext == nil || !ptr.Deref(pod.Spec.EnableServiceLinks, false) {
		t.Error("defaults are missing")
	}
}

// FuzzManifest: no manifest crashes the reader. Accepted pods have a safe identity, are accepted
// again in their stored form, and keep their UID.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifestOf("a")))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":[` + item("a", "i") + `,null,{}]}`))
	inputs, _ := filepath.Glob("testdata/*.in.yaml")
	for _, in := range inputs {
		text, err := os.ReadFile(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := manifest.Decode(data, true, false)
		for _, text := range append(d.Ignored.First, errorText(err)) {
			if strings.ContainsAny(text, "\n\r") {
				t.Fatalf("several lines: %q", text)
			}
		}
		for i := range d.Pods {
			p := &d.Pods[i]
			if err := fromFile.pod(p); err != nil {
				if strings.ContainsAny(err.Error(), "\n\r") {
					t.Fatalf("several lines: %q", err)
				}
				continue
			}
			if strings.ContainsAny(string(p.UID)+p.Name+p.Namespace, "/\\\x00 ") {
				t.Fatalf("unsafe identity %q %q %q", p.Namespace, p.Name, p.UID)
			}
			again := p.DeepCopy()
			if err := fromFile.pod(again); err != nil && len(again.Name) < 253 {
				t.Fatalf("accepted, stored and refused: %v", err)
			}
			if again.UID != p.UID {
				t.Fatalf("UID changed from %s to %s", p.UID, again.UID)
			}
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
