package resize

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/checksum"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

func sized(cpu, memory string) *v1.Pod {
	return podtest.New("", podtest.Containers("a cpu="+cpu+" memory="+memory))
}

// sharedMemory is a pod with a volume in memory.
func sharedMemory(size string) *v1.Pod {
	pod, limit := sized("..2", "..1Gi"), resource.MustParse(size)
	pod.Spec.Volumes = []v1.Volume{{Name: "shm", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}}}}
	return pod
}

// kubeletFile writes the file as a kubelet does.
func kubeletFile(t *testing.T, root, data string) {
	t.Helper()
	text := fmt.Sprintf(`{"data":%q,"checksum":%d}`, data, checksum.Of(data))
	if err := os.WriteFile(filepath.Join(root, KubeletFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The kubelet's file says what a pod was allocated, and else its newest sandbox.
func TestAdmitted(t *testing.T) {
	root := t.TempDir()
	kubeletFile(t, root, `{"entries":{"k":{"ContainerResources":{"a":{"limits":{"cpu":"3"}}}},`+
		`"n":{"ContainerResources":{"a":{"limits":{"cpu":"4"}}}}}}`)
	a, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	own := cri.Sandbox{Annotations: map[string]string{Annotation: Describe(sized("8", "1Gi"))}}
	broken := cri.Sandbox{Annotations: map[string]string{Annotation: "{"}}
	for name, test := range map[string]struct {
		pod  cri.Pod
		want string
	}{
		"our own":          {cri.Pod{UID: "o", Sandboxes: []cri.Sandbox{own, {}}}, "8"},
		"resized since":    {cri.Pod{UID: "n", Sandboxes: []cri.Sandbox{own}}, "4"},
		"a kubelet's":      {cri.Pod{UID: "k", Sandboxes: []cri.Sandbox{{}}}, "3"},
		"broken":           {cri.Pod{UID: "k", Sandboxes: []cri.Sandbox{broken}}, "3"},
		"nobody's":         {cri.Pod{UID: "o", Sandboxes: []cri.Sandbox{{}, own}}, ""},
		"without a record": {cri.Pod{UID: "k"}, ""},
	} {
		got := ""
		if r := a.Of(test.pod); r != nil {
			limits := r.Containers["a"].Limits
			got = limits.Cpu().String()
		}
		if got != test.want {
			t.Errorf("%s: %q CPUs, want %q", name, got, test.want)
		}
	}
	pod := sized("8", "1Gi")
	if got := a.Of(cri.Pod{Sandboxes: []cri.Sandbox{own}}).In(pod); got != pod {
		t.Error("what is written on a sandbox is not what is read from it")
	}
}

// cpusOf returns the CPU limits of the containers a of pods.
func cpusOf(pods map[types.UID]podspec.Resources) map[types.UID]string {
	out := map[types.UID]string{}
	for uid, r := range pods {
		limits := r.Containers["a"].Limits
		out[uid] = limits.Cpu().String()
	}
	return out
}

// What is written for a kubelet is what is read: active pods as they are allocated, and others that run as a kubelet
// or an earlier run of the agent allocated them.
func TestAllocated(t *testing.T) {
	root := t.TempDir()
	kubeletFile(t, root, `{"entries":{"k":{"ContainerResources":{"a":{"limits":{"cpu":"3"}}}},`+
		`"a":{"ContainerResources":{"a":{"limits":{"cpu":"4"}}}},`+
		`"gone":{"ContainerResources":{"a":{"limits":{"cpu":"5"}}}}}}`)
	a, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	active := podtest.New("a", podtest.Containers("a cpu=6 memory=1Gi"), podtest.Resources("cpu=6 memory=1Gi"))
	own := cri.Sandbox{Annotations: map[string]string{Annotation: Describe(sized("8", "1Gi"))}}
	raw, err := Encode(a.Allocated([]*v1.Pod{active}, []cri.Pod{
		{UID: "a", Sandboxes: []cri.Sandbox{{}}}, {UID: "k", Sandboxes: []cri.Sandbox{{}}},
		{UID: "o", Sandboxes: []cri.Sandbox{own}}, {UID: "nobody's", Sandboxes: []cri.Sandbox{{}}},
	}))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, KubeletFile), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, err = Open(root); err != nil {
		t.Fatal(err)
	}
	if got, want := cpusOf(a.kubelet), map[types.UID]string{"a": "6", "k": "3", "o": "8"}; !maps.Equal(got, want) {
		t.Errorf("CPUs by pod are %v, want %v", got, want)
	}
	if whole := a.kubelet["a"].Pod; whole == nil || whole.Limits.Cpu().String() != "6" {
		t.Errorf("the pod as a whole has %v", whole)
	}
}

// What runs of a pod is what it is allocated, but what is known of one that does not have all; until that is known, what
// was written last, or what an earlier run of the agent wrote.
func TestActuated(t *testing.T) {
	of := func(cpus string) podspec.Resources { return podspec.ResourcesOf(sized(cpus, "1Gi")) }
	root := t.TempDir()
	raw, err := Encode(map[types.UID]podspec.Resources{"had": of("7"), "written": of("7"), "settled": of("7")})
	if err == nil {
		err = os.WriteFile(filepath.Join(root, ActuatedFile), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	a, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if had := a.Had("had"); had == nil || a.Had("nobody") != nil {
		t.Fatalf("ran %v, %v", had, a.Had("nobody"))
	}
	allocated := map[types.UID]podspec.Resources{}
	for _, uid := range []types.UID{"had", "written", "settled", "behind", "new"} {
		allocated[uid] = of("2")
	}
	got := a.Actuated(allocated, map[types.UID]podspec.Resources{"written": of("5"), "gone": of("5")},
		func(uid types.UID, _ podspec.Resources) (podspec.Resources, bool) {
			if uid == "behind" {
				return podspec.Resources{Containers: map[string]v1.ResourceRequirements{
					"a": of("4").Containers["a"], "other": {}}}, true
			}
			return podspec.Resources{}, uid != "settled"
		})
	if is, want := cpusOf(got), map[types.UID]string{"had": "7", "written": "5", "settled": "2", "behind": "4", "new": "2"}; !maps.Equal(is, want) {
		t.Errorf("CPUs by pod are %v, want %v", is, want)
	}
	if len(got["behind"].Containers) != 1 {
		t.Errorf("a container came from nowhere: %v", got["behind"])
	}
}

// A file that cannot be used is told of by name, and costs nothing else.
func TestKubeletFileThatCannotBeRead(t *testing.T) {
	for content, want := range map[string]string{
		"{": "unexpected end", `{"data":"{}","checksum":1}`: "its checksum",
	} {
		root := t.TempDir()
		path := filepath.Join(root, KubeletFile)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := Open(root)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", content, err)
		}
		if r := a.Of(cri.Pod{UID: "k", Sandboxes: []cri.Sandbox{{}}}); r != nil {
			t.Errorf("%s: %v", content, r)
		}
		if kept, err := filepath.Glob(path + "?*"); err != nil || len(kept) != 1 {
			t.Errorf("%s: moved aside were %q, %v", content, kept, err)
		}
	}
	if _, err := Open(t.TempDir()); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

// What is too long for an annotation is left out.
func TestDescribeHasABound(t *testing.T) {
	pod := podtest.New("")
	for i := range 2000 {
		podtest.Containers(fmt.Sprint("container-", i))(pod)
	}
	if text := Describe(pod); text != "" {
		t.Errorf("an annotation of %d bytes", len(text))
	}
}

// Each rule of the kubelet says no in its words.
func TestRules(t *testing.T) {
	const exclusive = "InPlacePodVerticalScalingExclusiveCPUs InPlacePodVerticalScalingExclusiveMemory"
	const volumes = "InPlacePodVerticalScalingMemoryBackedVolumes"
	static := Rules{StaticCPUs: true, StaticMemory: true}
	shared, whole, anew := sized("..2", "..1Gi"), sized("2", "1Gi"), sized("..2", "..1Gi")
	podtest.Resources("cpu=3 memory=1Gi")(whole)
	anew.Spec.Containers[0].ResizePolicy = []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer}}
	for name, test := range map[string]struct {
		of        Rules
		off       string // gates
		swaps     bool
		has, want *v1.Pod
		rule      string
	}{
		"CPUs":                  {of: static, off: exclusive, has: sized("2", "1Gi"), want: sized("1", "2Gi"), rule: "guaranteed_pod_cpu_manager_static_policy"},
		"memory":                {of: static, off: exclusive, has: sized("2", "1Gi"), want: sized("2", "2Gi"), rule: "guaranteed_pod_memory_manager_static_policy"},
		"both, on":              {of: static, has: sized("2", "1Gi"), want: sized("1", "2Gi")},
		"not guaranteed":        {of: static, has: shared, want: sized("..1", "..2Gi")},
		"no policy":             {has: sized("2", "1Gi"), want: sized("1", "2Gi")},
		"the pod":               {has: sized("2", "1Gi"), want: whole},
		"the pod, off":          {off: "InPlacePodLevelResourcesVerticalScaling", has: sized("2", "1Gi"), want: whole, rule: "plr_feature_gate_off"},
		"a volume, off":         {off: volumes, has: sharedMemory("1Gi"), want: sharedMemory("2Gi"), rule: "memory_volume_resize_gate_off"},
		"a volume on cgroup v1": {has: sharedMemory("1Gi"), want: sharedMemory("2Gi"), rule: "cgroups_v1_unsupported"},
		"without pods' cgroups": {of: Rules{Unified: true}, has: sharedMemory("1Gi"), want: sharedMemory("2Gi"), rule: "no_pod_cgroups"},
		"a volume":              {of: Rules{Unified: true, PodGroups: true}, has: sharedMemory("1Gi"), want: sharedMemory("2Gi")},
		"the same volume":       {off: volumes, has: sharedMemory("1Gi"), want: sharedMemory("1024Mi")},
		"swap":                  {swaps: true, has: shared, want: sized("..2", "2Gi..3Gi"), rule: "swap_limitation"},
		"swap, the same memory": {swaps: true, has: shared, want: sized("..1", "..1Gi")},
		"swap, started anew":    {swaps: true, has: anew, want: sized("..2", "2Gi..3Gi")},
	} {
		test.of.Enabled = func(gate string) bool { return !slices.Contains(strings.Fields(test.off), gate) }
		test.of.Swaps = func(*v1.Pod, *v1.Container) bool { return test.swaps }
		rule := ""
		if no := test.of.Check(test.has, test.want); no != nil {
			rule = no.Rule
			if no.Reason != v1.PodReasonInfeasible || no.Message == "" {
				t.Errorf("%s: %+v", name, no)
			}
		}
		if rule != test.rule {
			t.Errorf("%s: %q, want %q", name, rule, test.rule)
		}
	}
}

// A container is started anew if its policy says so of what differs from what it was made with.
func TestRestarts(t *testing.T) {
	c := sized("2", "1Gi").Spec.Containers[0]
	if text := DescribeContainer(&c); text != "" {
		t.Errorf("a container that is resized in place says %s", text)
	}
	c.ResizePolicy = []v1.ContainerResizePolicy{
		{ResourceName: v1.ResourceCPU, RestartPolicy: v1.NotRequired},
		{ResourceName: v1.ResourceMemory, RestartPolicy: v1.RestartContainer},
	}
	made := Made(cri.Container{Annotations: map[string]string{Annotation: DescribeContainer(&c)}})
	if made == nil || Restarts(&c, *made) {
		t.Fatalf("it was made with %v", made)
	}
	for cpu, want := range map[string]bool{"3 1Gi": false, "2 2Gi": true, "3 2Gi": true} {
		amount, memory, _ := strings.Cut(cpu, " ")
		c.Resources = sized(amount, memory).Spec.Containers[0].Resources
		if got := Restarts(&c, *made); got != want {
			t.Errorf("%s: %v", cpu, got)
		}
	}
	for _, text := range []string{"", "{"} {
		if got := Made(cri.Container{Annotations: map[string]string{Annotation: text}}); got != nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// The messages are the kubelet's, which clients read.
func TestEvent(t *testing.T) {
	pod := podtest.New("", podtest.Containers("side~ cpu=100m", "a cpu=1"))
	for want, got := range map[string]string{
		`Pod resize completed: {"initContainers":[{"name":"side","resources":{"limits":{"cpu":"100m"},` +
			`"requests":{"cpu":"100m"}}}],"containers":[{"name":"a","resources":{"limits":{"cpu":"1"},` +
			`"requests":{"cpu":"1"}}}],"generation":2}`: Event(Completed, pod, 2, ""),
		`Pod resize error: {"containers":[{"name":"a","resources":{}}],"generation":3,"error":"why"}`: Event(
			Failed, podtest.New("", podtest.Containers("a")), 3, "why"),
	} {
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
