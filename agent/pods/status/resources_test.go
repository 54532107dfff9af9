package status

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// text formats amounts, sorted by name.
func text(l v1.ResourceList) string {
	out := map[v1.ResourceName]string{}
	for name, q := range l {
		out[name] = q.String()
	}
	return fmt.Sprint(out)[len("map"):]
}

// TestResources: a container was allocated those of the spec, and runs with those that the runtime reports. What
// that does not tell stays as it was until a resize is over.
func TestResources(t *testing.T) {
	const small = "cpu=250m..500m memory=32Mi..64Mi gpu=1"
	had := podtest.Requirements(small)
	exact := cri.Applied{Shares: 256, Quota: 50_000, Period: 100_000, Memory: 64 << 20}
	told := &v1.ContainerStatus{Name: "main", ContainerID: "r://1", Resources: &had,
		AllocatedResources: had.Requests}
	for name, test := range map[string]struct {
		spec                       string
		state                      cri.ContainerState
		applied                    cri.Applied
		was                        *v1.ContainerStatus
		allocated, request, limits string
	}{
		"as it was made": {small, cri.ContainerRunning, exact, nil,
			"[cpu:250m example.com/gpu:1 memory:32Mi]", "[cpu:250m example.com/gpu:1 memory:32Mi]",
			"[cpu:500m example.com/gpu:1 memory:64Mi]"},
		"the runtime does not tell": {small, cri.ContainerRunning, cri.Applied{}, nil,
			"[cpu:250m example.com/gpu:1 memory:32Mi]", "[cpu:250m example.com/gpu:1 memory:32Mi]",
			"[cpu:500m example.com/gpu:1 memory:64Mi]"},
		"changed in the runtime": {small, cri.ContainerRunning,
			cri.Applied{Shares: 512, Quota: 100_000, Memory: 128 << 20}, nil,
			"[cpu:250m example.com/gpu:1 memory:32Mi]", "[cpu:500m example.com/gpu:1 memory:32Mi]",
			"[cpu:1 example.com/gpu:1 memory:128Mi]"},
		"not running any more": {small, cri.ContainerExited, cri.Applied{Shares: 512}, nil,
			"[cpu:250m example.com/gpu:1 memory:32Mi]", "[cpu:250m example.com/gpu:1 memory:32Mi]",
			"[cpu:500m example.com/gpu:1 memory:64Mi]"},
		"below what the kernel can do": {"cpu=1m..5m", cri.ContainerRunning,
			cri.Applied{Shares: 2, Quota: 1000, Period: 100_000}, nil,
			"[cpu:1m]", "[cpu:1m]", "[cpu:5m]"},
		"being resized": {"cpu=3..4 memory=64Mi gpu=1", cri.ContainerRunning, exact, told,
			"[cpu:3 example.com/gpu:1 memory:64Mi]", "[cpu:250m example.com/gpu:1 memory:32Mi]",
			"[cpu:500m example.com/gpu:1 memory:64Mi]"},
		"with a limit of the pod": {"memory=32Mi.. cpu=..500m", cri.ContainerRunning, exact, nil,
			"[memory:32Mi]", "[cpu:250m memory:32Mi]", "[cpu:500m memory:64Mi]"},
		"nothing is asked for": {"", cri.ContainerRunning,
			cri.Applied{Shares: 2, Quota: -1, Memory: 1 << 50}, nil, "[]", "[]", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			in := Input{Node: Node{Runtime: "r"}, Pod: podtest.New("", podtest.Containers("main "+test.spec))}
			in.Observed.Containers = []cri.Container{
				{ID: "1", Name: "main", State: test.state, Applied: test.applied}}
			if test.was != nil {
				in.Previous.ContainerStatuses = []v1.ContainerStatus{*test.was}
				in.Resize.InProgress = true
			}
			status := Generate(in)
			if diff := cmp.Diff(podtest.New("", podtest.Containers("main "+test.spec)), in.Pod); diff != "" {
				t.Errorf("the pod was written to (-was +is):\n%s", diff)
			}
			for what, got := range map[string]struct {
				allocated v1.ResourceList
				resources *v1.ResourceRequirements
			}{
				"container": {status.ContainerStatuses[0].AllocatedResources,
					status.ContainerStatuses[0].Resources},
				"pod": {status.AllocatedResources, status.Resources},
			} {
				if a, r, l := text(got.allocated), text(got.resources.Requests),
					text(got.resources.Limits); a != test.allocated || r != test.request ||
					l != test.limits {
					t.Errorf("%s: allocated %s, requests %s, limits %s; want %s, %s, %s", what, a,
						r, l, test.allocated, test.request, test.limits)
				}
			}
		})
	}
	if text(had.Requests) != "[cpu:250m example.com/gpu:1 memory:32Mi]" {
		t.Errorf("the previous status was written to: %v", had)
	}
}

// TestPodResources: a pod has what its containers need at the same time, including containers that
// do not exist yet; a pod that waits for a place has nothing.
func TestPodResources(t *testing.T) {
	in := Input{Pod: podtest.New("",
		podtest.Containers("first! cpu=2", "aside~ cpu=250m", "a cpu=1", "b cpu=1"))}
	in.Observed.Containers = []cri.Container{
		{ID: "1", Name: "a", State: cri.ContainerRunning, Applied: cri.Applied{Shares: 2048}}}
	s := Generate(in)
	if a, r := text(s.AllocatedResources), text(s.Resources.Requests); a != "[cpu:2250m]" ||
		r != "[cpu:3250m]" {
		t.Errorf("allocated %s, requests %s", a, r)
	}
	if s.ContainerStatuses[1].Resources != nil || s.ContainerStatuses[1].AllocatedResources != nil {
		t.Errorf("a container that is not there has %+v", s.ContainerStatuses[1])
	}
	if s := Waiting(in, Reason{Reason: "x"}); s.Resources != nil || s.AllocatedResources != nil {
		t.Errorf("a pod that waits has %v and %v", s.AllocatedResources, s.Resources)
	}
}

// TestClaimsBring: what claims bring is the pod's, once, although the runtime reports limits with
// it.
func TestClaimsBring(t *testing.T) {
	in := Input{Pod: podtest.New("", podtest.Containers("a cpu=1 memory=1Gi", "b"),
		podtest.Brings([]string{"a"}, "cpu=2 memory=1Gi", "memory=100Mi", "memory=50Mi"))}
	in.Observed.Containers = []cri.Container{{ID: "1", Name: "a", State: cri.ContainerRunning,
		Applied: cri.Applied{Shares: 1024, Quota: 300_000, Period: 100_000, Memory: 2198 << 20}}}
	s := Generate(in)
	for what, got := range map[string]string{
		"[cpu:3 memory:2198Mi]": text(s.AllocatedResources) + text(s.Resources.Requests) +
			text(s.Resources.Limits) + text(s.ContainerStatuses[0].Resources.Limits),
		"[cpu:1 memory:1Gi]": text(s.ContainerStatuses[0].AllocatedResources) +
			text(s.ContainerStatuses[0].Resources.Requests),
	} {
		if strings.ReplaceAll(got, what, "") != "" {
			t.Errorf("%s, want only %s", got, what)
		}
	}
	in.Pod.Spec.Containers[0].Resources.Claims = []v1.ResourceClaim{{Name: "x"}}
	in.Previous, in.Observed.Containers[0].State = s, cri.ContainerExited
	if got := Generate(in).ContainerStatuses[0].Resources; text(got.Limits) != "[cpu:1 memory:1Gi]" ||
		len(got.Claims) != 1 || got.Claims[0].Name != "x" {
		t.Errorf("a container that has ended has %+v", got)
	}
}

// TestUserAndMounts: the runtime reports the user, which is kept when the container's record is
// gone; mounts are reported before the container exists.
func TestUserAndMounts(t *testing.T) {
	mode := func(m v1.RecursiveReadOnlyMode) *v1.RecursiveReadOnlyMode { return &m }
	in := Input{Node: Node{Runtime: "r", Handlers: []cri.RuntimeHandler{
		{RecursiveReadOnlyMounts: true}, {Name: "heavy"}}}, Pod: podtest.New("", podtest.Containers("main"))}
	in.Pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "a", MountPath: "/a"}, {Name: "b", MountPath: "/b", ReadOnly: true},
		{Name: "c", MountPath: "/c", ReadOnly: true, RecursiveReadOnly: mode(v1.RecursiveReadOnlyIfPossible)}}
	mounts := func(s v1.PodStatus) (out string) {
		for _, m := range s.ContainerStatuses[0].VolumeMounts {
			out += fmt.Sprintf("%s %s %t %s;", m.Name, m.MountPath, m.ReadOnly,
				ptr.Deref(m.RecursiveReadOnly, "-"))
		}
		return out
	}
	const want = "a /a false -;b /b true Disabled;c /c true "
	if got := mounts(Generate(in)); got != want+"Enabled;" {
		t.Errorf("mounts %s", got)
	}
	in.Observed.Sandboxes = []cri.Sandbox{{Handler: "heavy"}}
	if got := mounts(Generate(in)); got != want+"Disabled;" {
		t.Errorf("mounts of a handler without recursion: %s", got)
	}
	in.Observed.Sandboxes[0].Handler = ""
	if got := mounts(Generate(in)); got != want+"Enabled;" {
		t.Errorf("mounts of the default handler: %s", got)
	}
	class := in
	class.Pod, class.Observed = in.Pod.DeepCopy(), cri.Pod{}
	class.Pod.Spec.RuntimeClassName = ptr.To("some")
	if got := mounts(Generate(class)); got != want+"Disabled;" {
		t.Errorf("mounts of one of two handlers: %s", got)
	}
	class.Node.Handlers = []cri.RuntimeHandler{
		{RecursiveReadOnlyMounts: true}, {Name: "runc", RecursiveReadOnlyMounts: true}}
	if got := mounts(Generate(class)); got != want+"Enabled;" {
		t.Errorf("mounts of any handler: %s", got)
	}
	in.Observed.Containers = []cri.Container{{ID: "1", Name: "main", State: cri.ContainerRunning,
		Applied: cri.Applied{User: &v1.LinuxContainerUser{UID: 7, SupplementalGroups: []int64{8}}}}}
	in.Previous = Generate(in)
	in.Observed = cri.Pod{}
	s := Generate(in).ContainerStatuses[0]
	if s.User == nil || s.User.Linux.UID != 7 || s.User.Linux.SupplementalGroups[0] != 8 {
		t.Errorf("user %+v", s.User)
	}
	if s.Resources == nil || s.ContainerID != "r://1" {
		t.Errorf("of a container that was lost is told %+v", s)
	}
}

// With the gate a mount of an image says which image it is, as the runtime names it.
func TestImagesOfVolumesAreReported(t *testing.T) {
	for _, gate := range []bool{false, true} {
		pod := makePod("Always web")
		pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
			{Name: "model", MountPath: "/model/"}, {Name: "data", MountPath: "/data"}}
		observed := observe("sandbox web")
		observed.Containers[0].Applied.Images = map[string]string{"/model": "sha256:abc"}
		got := Generate(Input{Pod: pod, Facts: Facts{Observed: observed}, Now: at(50),
			Node: Node{Runtime: "sim", ImageRefs: gate}}).ContainerStatuses[0].VolumeMounts
		var refs []string
		for _, m := range got {
			if m.VolumeStatus != nil {
				refs = append(refs, m.Name+"="+m.VolumeStatus.Image.ImageRef)
			}
		}
		want := map[bool]string{false: "[]", true: "[model=sha256:abc]"}[gate]
		if is := fmt.Sprint(refs); is != want {
			t.Errorf("gate %t: %s, want %s", gate, is, want)
		}
	}
}
