package resources

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Of a pod that an earlier run resized, what the runtime reports counts and not what that run recorded, which may be
// older or newer than what it did.
func TestFound(t *testing.T) {
	spec := sized("a 2 1Gi")
	had := podspec.ResourcesOf(spec)
	has := cri.Applied{Shares: 1024, Quota: 200_000, Period: 100_000, Memory: 3 << 30}
	for name, test := range map[string]struct {
		recorded *podspec.Resources // by the state
		want     string
	}{
		"resized": {&had, "CPU shares 1024-2048, memory 3221225472-1073741824"},
		"never":   {nil, ""},
	} {
		n := newNode(Settings{}, machine.Hardware{Machine: eightCPUs(t)}, allocation.State{
			Pods: map[types.UID]allocation.Pod{spec.UID: {UID: spec.UID, Resources: test.recorded}}})
		r := reader{node: &n, unread: func() {}, spec: func(types.UID) (*v1.Pod, bool) { return spec, true },
			had: func(types.UID) *podspec.Resources { return &had }}
		pod := cri.Pod{UID: spec.UID, Containers: []cri.Container{
			{ID: "id", Name: "a", State: cri.ContainerRunning, Applied: has}}}
		found, known := r.all(t.Context(), []cri.Pod{pod}, nil)
		var parts []string
		for _, g := range found[0].gaps(&n) {
			number := func(text string) string { return strings.Fields(text)[0] }
			parts = append(parts, g.name+" "+number(g.has)+"-"+number(g.want))
		}
		if got := strings.Join(parts, ", "); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if found, _ = r.all(t.Context(), []cri.Pod{pod}, records{}); len(found[0].gaps(&n)) > 0 {
			t.Errorf("%s: a container that came later lacks %+v", name, found[0].gaps(&n))
		}
		known[subject{spec.UID, "id"}].gave(spec)
		if found, _ = r.all(t.Context(), []cri.Pod{pod}, known); len(found[0].gaps(&n)) > 0 {
			t.Errorf("%s: then it still lacks %+v", name, found[0].gaps(&n))
		}
	}
}
