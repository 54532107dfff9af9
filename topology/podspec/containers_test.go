package podspec

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// podOf makes containers from a text like "init:2 side:1 | main:3", with so many of example.com/gpu
// each; a name that begins with "side" makes a sidecar.
func podOf(text string) *v1.Pod {
	pod := &v1.Pod{}
	list := &pod.Spec.InitContainers
	for word := range strings.FieldsSeq(text) {
		if word == "|" {
			list = &pod.Spec.Containers
			continue
		}
		name, n, _ := strings.Cut(word, ":")
		c := container(nil, v1.ResourceList{})
		if c.Name = name; n != "" {
			c.Resources.Limits["example.com/gpu"] = resource.MustParse(n)
		}
		if strings.HasPrefix(name, "side") {
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
		}
		*list = append(*list, c)
	}
	return pod
}

func TestContainersInOrderOfStart(t *testing.T) {
	pod := podOf("a side b | x y")
	// A regular container with a restart policy is no sidecar.
	pod.Spec.Containers[1].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	var got []string
	for c, kind := range Containers(pod) {
		got = append(got, fmt.Sprint(c.Name, " ", kind))
	}
	const want = "a init, side sidecar, b init, x regular, y regular"
	if all := strings.Join(got, ", "); all != want {
		t.Errorf("%s\nwant %s", all, want)
	}
	for c := range Containers(pod) {
		if c.Name == "b" {
			break // stop in the middle
		}
	}
	for name, want := range map[string]Kind{"b": Init, "side": Sidecar, "y": Regular} {
		if c, kind := Find(pod, name); c == nil || c.Name != name || kind != want {
			t.Errorf("%s: found %v, %s", name, c, kind)
		}
	}
	if c, _ := Find(pod, "nobody"); c != nil {
		t.Errorf("found %v", c)
	}
}

func TestPeak(t *testing.T) {
	for text, want := range map[string]int{
		"":                         0,
		"| x:2 y:3":                5,
		"a:4 | x:1":                4,
		"a:4 b:6 | x:1 y:1":        6,
		"side:1 a:4 | x:1":         5,
		"a:4 side:1 | x:1":         4,
		"a:4 side:2 b:3 | x:4 y:1": 7,
	} {
		if got := Devices(podOf(text), "example.com/gpu"); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestIsExtended(t *testing.T) {
	for name, want := range map[string]bool{
		"nvidia.com/gpu": true, "vpc.amazonaws.com/pod-eni": true, "a/b": true,
		"gpu": false, "cpu": false, "x.kubernetes.io/gpu": false, "mykubernetes.io/x": false,
		"hugepages-2Mi":           false,
		"requests.nvidia.com/gpu": false, "nvidia.com/": false, "/gpu": false, "a/b/c": false,
		"a.com/" + strings.Repeat("x", 64): false, strings.Repeat("a", 250) + "/x": false,
	} {
		if got := IsExtended(name); got != want {
			t.Errorf("IsExtended(%q) = %t", name, got)
		}
	}
}
