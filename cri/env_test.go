package cri

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/internal/podtest"
)

func TestExpand(t *testing.T) {
	known := map[string]string{"A": "1", "B": "$(A)", "EMPTY": ""}
	tests := []struct {
		text, want string
		missing    []string
	}{
		{"", "", nil},
		{"plain", "plain", nil},
		{"$(A)", "1", nil},
		{"x$(A)y$(A)z", "x1y1z", nil},
		{"$(B)", "$(A)", nil}, // values are not expanded again
		{"$(EMPTY)", "", nil},
		{"$(NO)", "$(NO)", []string{"NO"}},
		{"$(NO)$(A)$(NOT)", "$(NO)1$(NOT)", []string{"NO", "NOT"}},
		{"$$(A)", "$(A)", nil},
		{"$$$(A)", "$1", nil},
		{"$$$$(A)", "$$(A)", nil},
		{"$A", "$A", nil},
		{"${A}", "${A}", nil},
		{"cost: 5$", "cost: 5$", nil},
		{"$(A", "$(A", nil},
		{"$(A$(A)", "$(A$(A)", []string{"A$(A"}},
		{"$()", "$()", []string{""}},
	}
	for _, tt := range tests {
		all := scope{known, len(tt.want)}
		got, missing, err := all.expand(tt.text)
		if got != tt.want || !cmp.Equal(missing, tt.missing) || err != nil {
			t.Errorf("%q became %q, missing %q, %v; want %q, %q",
				tt.text, got, missing, err, tt.want, tt.missing)
		}
		less := scope{known, len(tt.want) - 1}
		if got, _, err := less.expand(tt.text); !errors.Is(err, errNoRoom) || got != "" {
			t.Errorf("%q became %q, %v with less room than it needs", tt.text, got, err)
		}
	}
}

// Doubling each $ keeps any text unchanged.
func TestExpandEscape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.SampledFrom([]rune("$()AB x"))).Draw(t, "text")
		wide := scope{map[string]string{"": "no", "A": "no", "B": "no", "AB": "no"}, len(text)}
		got, missing, err := wide.expand(strings.ReplaceAll(text, "$", "$$"))
		if got != text || missing != nil || err != nil {
			t.Fatalf("escaped %q came out as %q, missing %q, %v", text, got, missing, err)
		}
	})
}

// show writes variables as NAME=value.
func show(envs []*runtimeapi.KeyValue) []string {
	var out []string
	for _, env := range envs {
		out = append(out, env.Key+"="+string(env.Value))
	}
	return out
}

func field(name, path string) v1.EnvVar {
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{
		FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path},
	}}
}

func quantityOf(name, container, res, divisor string) v1.EnvVar {
	ref := &v1.ResourceFieldSelector{ContainerName: container, Resource: res}
	if divisor != "" {
		ref.Divisor = resource.MustParse(divisor)
	}
	return v1.EnvVar{Name: name, ValueFrom: &v1.EnvVarSource{ResourceFieldRef: ref}}
}

var list = podtest.Amounts

func testFacts() Facts {
	return Facts{
		NodeName: "node-1", HostIPs: []string{"10.0.0.1", "fd00::1"},
		PodIPs:      []string{"10.1.0.7", "fd01::7"},
		Allocatable: list("cpu=15500m memory=60Gi ephemeral-storage=100Gi"),
	}
}

func testPod() *v1.Pod {
	return podtest.New("shop/web", podtest.UID("u-1"), podtest.Annotations("note", "x\"y"), podtest.Containers(
		"main cpu=1500m.. memory=100Mi..1Gi", "other cpu=..250m hugepages-2Mi=..4Mi"), func(p *v1.Pod) {
		p.Labels = map[string]string{"app": "web", "tier": "a b"}
		p.Spec.ServiceAccountName = "robot"
		p.Spec.Containers[0].Image, p.Spec.Containers[1].Image = "img:1", "img:2"
	})
}

func TestEnv(t *testing.T) {
	host := testPod()
	host.Spec.HostNetwork = true
	noIPs := testFacts()
	noIPs.PodIPs = nil
	tests := []struct {
		name  string
		pod   *v1.Pod
		facts Facts
		env   []v1.EnvVar
		want  []string
	}{
		{"order and references", testPod(), testFacts(), []v1.EnvVar{
			{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)$(C)$$(A)"}, {Name: "C", Value: "3"},
			{Name: "A", Value: "$(A)2"}, {Name: "D", Value: "$(A)"},
		}, []string{"A=1", "B=1$(C)$(A)", "C=3", "A=12", "D=12"}},
		{"pod fields", testPod(), testFacts(), []v1.EnvVar{
			field("N", "metadata.name"), field("NS", "metadata.namespace"),
			field("U", "metadata.uid"),
			field("SA", "spec.serviceAccountName"), field("NODE", "spec.nodeName"),
		}, []string{"N=web", "NS=shop", "U=u-1", "SA=robot", "NODE=node-1"}},
		{"maps", testPod(), testFacts(), []v1.EnvVar{
			field("L", "metadata.labels"), field("L1", "metadata.labels['tier']"),
			field("L2", "metadata.labels['none']"), field("AN", "metadata.annotations['note']"),
		}, []string{"L=app=\"web\"\ntier=\"a b\"", "L1=a b", "L2=", "AN=x\"y"}},
		{"addresses", testPod(), testFacts(), []v1.EnvVar{
			field("H", "status.hostIP"), field("HS", "status.hostIPs"),
			field("P", "status.podIP"), field("PS", "status.podIPs"),
		}, []string{"H=10.0.0.1", "HS=10.0.0.1,fd00::1", "P=10.1.0.7", "PS=10.1.0.7,fd01::7"}},
		{"addresses of the host's network", host, noIPs, []v1.EnvVar{
			field("P", "status.podIP"), field("PS", "status.podIPs"),
		}, []string{"P=10.0.0.1", "PS=10.0.0.1,fd00::1"}},
		{"no addresses yet", testPod(), noIPs, []v1.EnvVar{
			field("P", "status.podIP"),
		}, []string{"P="}},
		{"resources round up", testPod(), testFacts(), []v1.EnvVar{
			quantityOf("R", "", "requests.cpu", ""), quantityOf("RM", "", "requests.cpu", "1m"),
			quantityOf("M", "main", "limits.memory", "1Mi"),
			quantityOf("MB", "", "requests.memory", ""),
			quantityOf("G", "", "requests.memory", "1Gi"),
			quantityOf("HP", "other", "limits.hugepages-2Mi", "1Mi"),
		}, []string{"R=2", "RM=1500", "M=1024", "MB=104857600", "G=1", "HP=4"}},
		{"limits default to what the node has", testPod(), testFacts(), []v1.EnvVar{
			quantityOf("C", "", "limits.cpu", "1m"), quantityOf("O", "other", "limits.cpu", ""),
			quantityOf("E", "", "limits.ephemeral-storage", "1Gi"),
			quantityOf("R", "", "requests.ephemeral-storage", ""),
		}, []string{"C=15500", "O=1", "E=100", "R=0"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			container := &tt.pod.Spec.Containers[0]
			container.Env = tt.env
			got, err := Env(tt.pod, container, ContainerOptions{Facts: tt.facts})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, show(got)); diff != "" {
				t.Error("-want +got:\n", diff)
			}
		})
	}
}

func TestEnvErrors(t *testing.T) {
	from := func(s v1.EnvVarSource) []v1.EnvVar { return []v1.EnvVar{{Name: "X", ValueFrom: &s}} }
	ref := v1.LocalObjectReference{Name: "obj"}
	tests := []struct {
		name    string
		env     []v1.EnvVar
		envFrom []v1.EnvFromSource
		want    string
	}{
		{"config map", from(v1.EnvVarSource{
			ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: ref}}),
			nil, `variable "X": config map "obj" cannot be read without an API server`},
		{"secret", from(v1.EnvVarSource{
			SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: ref}}),
			nil, `variable "X": secret "obj" cannot be read`},
		{"all of a config map", nil,
			[]v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: ref}}},
			`envFrom: config map "obj"`},
		{"all of a secret", nil,
			[]v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: ref}}},
			`envFrom: secret "obj"`},
		{"unknown field", []v1.EnvVar{field("X", "status.phase")}, nil,
			`field path "status.phase"`},
		{"unclosed subscript", []v1.EnvVar{field("X", "metadata.labels['a")}, nil, "field path"},
		{"unknown resource", []v1.EnvVar{quantityOf("X", "", "limits.example.com/gpu", "")}, nil,
			`resource "limits.example.com/gpu"`},
		{"unknown kind", []v1.EnvVar{quantityOf("X", "", "usage.cpu", "")}, nil,
			`resource "usage.cpu"`},
		{"unknown container", []v1.EnvVar{quantityOf("X", "nobody", "limits.cpu", "")}, nil,
			`no container "nobody"`},
		{"negative divisor", []v1.EnvVar{quantityOf("X", "", "limits.cpu", "-1")}, nil,
			"divisor -1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			pod := testPod()
			container := &pod.Spec.Containers[0]
			container.Env, container.EnvFrom = tt.env, tt.envFrom
			_, err := Env(pod, container, ContainerOptions{Facts: testFacts()})
			var start *StartError
			if !errors.As(err, &start) || start.Reason != ReasonCreateContainerConfig {
				t.Fatalf("got %v, want a StartError with reason %s", err,
					ReasonCreateContainerConfig)
			}
			if !strings.Contains(start.Message, tt.want) ||
				!strings.Contains(start.Message, `"main"`) {
				t.Errorf("message %q does not contain %q and the container", start.Message, tt.want)
			}
		})
	}
}

func TestEnvOfDevices(t *testing.T) {
	pod := testPod()
	container := &pod.Spec.Containers[0]
	container.Env = []v1.EnvVar{{Name: "GPUS", Value: "mine"}, {Name: "SEEN", Value: "$(NICS)"}}
	container.Args = []string{"$(GPUS) $(NICS)"}
	answers := []*v1beta1.ContainerAllocateResponse{
		{Envs: map[string]string{"GPUS": "0,1", "B": "2", "A": "1"}},
		nil,
		{Envs: map[string]string{"GPUS": "second", "NICS": "eth9"}},
	}
	envs, err := Env(pod, container, ContainerOptions{Facts: testFacts(), Devices: answers})
	if err != nil {
		t.Fatal(err)
	}
	// A variable of the spec comes last, so the process sees its value instead of the plugin's.
	want := []string{"A=1", "B=2", "GPUS=0,1", "NICS=eth9", "GPUS=mine", "SEEN=$(NICS)"}
	if diff := cmp.Diff(want, show(envs)); diff != "" {
		t.Error("-want +got:\n", diff)
	}
	_, got, err := commandLine(container, envs, MaxArguments)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"mine eth9"}, got); diff != "" {
		t.Error("args -want +got:\n", diff)
	}
}
