package cpumanager_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/cpuset"
	"pgregory.net/rapid"

	"github.com/numalet/numalet/cpumanager"
)

func TestPlan(t *testing.T) {
	want := map[string]cpuset.CPUSet{
		"a-grows":     cpus(t, "0-5"),
		"b-moves":     cpus(t, "4-5"),
		"c-shrinks":   cpus(t, "0-3"),
		"d-unknown":   cpus(t, "0-3"),
		"e-same":      cpus(t, "0-3"),
		"f-stopped":   cpus(t, "0-3"),
		"g-nonsense":  cpus(t, "6"),
		"h-empty":     cpus(t, ""),
		"i-shrinks":   cpus(t, "0-1"),
		"j-same-text": cpus(t, "0-3"),
	}
	observed := map[string]string{
		"a-grows":     "0-3",
		"b-moves":     "3-4",
		"c-shrinks":   "0-7",
		"d-unknown":   "",
		"e-same":      "0-3",
		"g-nonsense":  "6-x",
		"h-empty":     "0-3",
		"i-shrinks":   "0-2",
		"j-same-text": "0,1,2-3\n",
		"k-stranger":  "0-3",
	}
	var got []string
	for _, u := range cpumanager.Plan(want, observed) {
		got = append(got, fmt.Sprintf("%s %q -> %q: %s", u.ContainerID, u.From, u.To, u.Reason))
	}
	if diff := cmp.Diff([]string{
		`c-shrinks "0-7" -> "0-3": change 0-7 to 0-3`,
		`i-shrinks "0-2" -> "0-1": change 0-2 to 0-1`,
		`d-unknown "" -> "0-3": set to 0-3: the runtime reports none`,
		`g-nonsense "" -> "6": set to 6: the runtime reports "6-x"`,
		`b-moves "3-4" -> "4-5": change 3-4 to 4-5`,
		`a-grows "0-3" -> "0-5": change 0-3 to 0-5`,
	}, got); diff != "" {
		t.Error(diff)
	}
}

// Carrying a plan out leads to the wanted sets, and the next plan is empty. When an exclusive
// container takes CPUs out of the shared pool, the sharers leave before it grows.
func TestPlanConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching("[a-f]{2}")
		ids := rapid.SliceOfNDistinct(id, 1, 6, rapid.ID[string]).Draw(t, "ids")
		own := someOf(t, cpuset.New(1, 2, 3), "exclusive").Union(cpuset.New(4))
		shared := cpuset.New(0, 1, 2, 3, 4, 5).Difference(own)
		want := map[string]cpuset.CPUSet{ids[0]: own}
		observed := map[string]string{ids[0]: "4"}
		for _, id := range ids[1:] {
			want[id] = shared
			sets := []string{"", "0-5", "0-3,5", "0,5"}
			observed[id] = rapid.SampledFrom(sets).Draw(t, "observed")
		}
		for _, u := range cpumanager.Plan(want, observed) {
			if u.ContainerID == ids[0] {
				for _, id := range ids[1:] {
					now := cpus(t, observed[id])
					if now.IsEmpty() || !now.Intersection(u.To).IsEmpty() {
						t.Fatalf("%v comes while %s is on %q", u, id, observed[id])
					}
				}
			}
			observed[u.ContainerID] = u.To.String()
		}
		for id, set := range want {
			if observed[id] != set.String() {
				t.Fatalf("%s is on %q, want %s", id, observed[id], set)
			}
		}
		if again := cpumanager.Plan(want, observed); len(again) != 0 {
			t.Fatalf("second plan: %v", again)
		}
	})
}
