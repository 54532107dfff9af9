package decide

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
)

// candidates are made of "uid/class cpu memory", with class g, b or e.
func candidates(t *testing.T, words string) (out []candidate) {
	for word := range strings.SplitSeq(words, ", ") {
		fields := strings.Fields(word)
		uid, class, _ := strings.Cut(fields[0], "/")
		e := allocation.Entry{Requests: v1.ResourceList{v1.ResourcePods: resource.MustParse("1")}}
		e.Rank.QoS = map[string]v1.PodQOSClass{"g": v1.PodQOSGuaranteed, "b": v1.PodQOSBurstable,
			"e": v1.PodQOSBestEffort}[class]
		if len(fields) == 3 {
			e.Requests[v1.ResourceCPU] = resource.MustParse(fields[1])
			e.Requests[v1.ResourceMemory] = resource.MustParse(fields[2])
		}
		out = append(out, candidate{types.UID(uid), &e})
	}
	return out
}

// As few pods go as will do, none of a better class than must, and of those that serve alike the
// smaller.
func TestVictims(t *testing.T) {
	for _, tc := range []struct {
		missing need
		from    string
		want    string // "none": there are not enough
	}{
		{need{{v1.ResourceCPU, 1000}}, "a/b 1 1Gi, b/b 2 1Gi, c/b 500m 1Gi", "a"},
		{need{{v1.ResourceCPU, 1000}}, "a/b 1 2Gi, b/b 1 1Gi", "b"},
		{need{{v1.ResourceCPU, 1000}}, "a/b 2 1Gi, b/b 1 1Gi", "b"},
		{need{{v1.ResourceCPU, 1500}}, "a/b 1 1Gi, b/b 1 1Gi, c/b 500m 1Gi", "a c"},
		{need{{v1.ResourceCPU, 1000}}, "g/g 1 1Gi, a/b 500m 1Gi, b/b 500m 1Gi", "a b"},
		{need{{v1.ResourceCPU, 1000}}, "g/g 500m 1Gi, a/b 500m 1Gi, z/e", "a g"},
		{need{{v1.ResourceCPU, 1000}}, "a/b 500m 1Gi, z/e", "none"},
		{need{{v1.ResourcePods, 1}}, "g/g 1 1Gi, a/b 1 1Gi, z/e, y/e", "y"},
		{need{{v1.ResourcePods, 2}}, "g/g 1 1Gi, a/b 1 1Gi, z/e", "a z"},
		{need{{v1.ResourceCPU, 1000}, {v1.ResourceMemory, 1 << 30}},
			"a/b 1 0, b/b 0 1Gi, c/b 900m 1000Mi", "a b c"},
		{need{{v1.ResourceCPU, 1000}, {v1.ResourceMemory, 1 << 30}},
			"a/b 1 0, b/b 0 1Gi, c/b 1 1Gi", "c"},
		{nil, "a/b 1 1Gi", ""},
	} {
		victims, ok := victimsOf(tc.missing, candidates(t, tc.from))
		got := strings.Trim(fmt.Sprint(victims), "[]")
		if !ok {
			got = "none"
		}
		if got != tc.want {
			t.Errorf("%v of %s: %s, want %s", tc.missing, tc.from, got, tc.want)
		}
	}
}
