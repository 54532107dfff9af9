package beside

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
)

// difference is an intended difference: patterns of place and values, and the reason.
type difference struct {
	where, why string
	// sometimes: it need not occur.
	sometimes bool
}

// TestBeside: with the same pods, clients see the same of numalet as of the stock kubelet, except
// for the differences in the tables.
func TestBeside(t *testing.T) {
	seen := map[string]record{}
	for _, agent := range []string{"kubelet", "numalet"} {
		if !t.Run(agent, func(t *testing.T) { seen[agent] = observe(t, agent) }) {
			return
		}
	}
	if len(seen["kubelet"].statuses) == 0 || len(seen["numalet"].statuses) == 0 {
		t.Skip("left out: one of them was")
	}
	kubelet, numalet := seen["kubelet"], seen["numalet"]
	for _, part := range []struct {
		name             string
		kubelet, numalet map[string]string
		meant            []difference
	}{
		{"statuses", kubelet.statuses, numalet.statuses, statusDifferences},
		{"node", kubelet.node, numalet.node, nodeDifferences},
		{"events", kubelet.events, numalet.events, eventDifferences},
		{"metrics", kubelet.metrics, numalet.metrics, metricDifferences},
		{"summary", kubelet.summary, numalet.summary, summaryDifferences},
	} {
		t.Run(part.name, func(t *testing.T) {
			compare(t, part.kubelet, part.numalet, part.meant)
		})
	}
}

// compare fails for each difference that is not in the table, and for each in the table that does
// not occur.
func compare(t *testing.T, kubelet, numalet map[string]string, meant []difference) {
	t.Helper()
	all := maps.Clone(kubelet)
	maps.Copy(all, numalet)
	found := make([]bool, len(meant))
	for _, key := range slices.Sorted(maps.Keys(all)) {
		a, inKubelet := kubelet[key]
		b, inNumalet := numalet[key]
		if a == b && inKubelet == inNumalet {
			continue
		}
		at := slices.IndexFunc(meant, func(d difference) bool {
			return regexp.MustCompile("^(" + d.where + ")$").MatchString(key)
		})
		if at >= 0 {
			found[at] = true
			continue
		}
		t.Errorf("%s\n  kubelet: %s\n  numalet: %s", key, note(a, inKubelet), note(b, inNumalet))
	}
	for i, d := range meant {
		if !found[i] && !d.sometimes {
			t.Errorf("there is no such difference: %s (%s)", d.where, d.why)
		}
	}
}

func note(text string, is bool) string {
	if !is {
		return "-"
	}
	return fmt.Sprintf("%q", text)
}
