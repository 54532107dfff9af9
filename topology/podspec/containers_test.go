package podspec

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

func TestContainersInOrderOfStart(t *testing.T) {
	pod := podtest.New("", podtest.Containers("a!", "side~", "b!", "x", "y"))
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
		"x":                                    0,
		"x gpu=2, y gpu=3":                     5,
		"a! gpu=4, x gpu=1":                    4,
		"a! gpu=4, b! gpu=6, x gpu=1, y gpu=1": 6,
		"s~ gpu=1, a! gpu=4, x gpu=1":          5,
		"a! gpu=4, s~ gpu=1, x gpu=1":          4,
		"a! gpu=4, s~ gpu=2, b! gpu=3, x gpu=4, y gpu=1": 7,
	} {
		pod := podtest.New("", podtest.Containers(strings.Split(text, ", ")...))
		if got := AllDevices(pod)["example.com/gpu"]; got != want {
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
