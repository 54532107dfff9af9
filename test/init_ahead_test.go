package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

const twoNodes = `name: two
nodes:
- {id: 0, cpus: "0-31", memory: 125Gi, distances: {0: 10, 1: 21}}
- {id: 1, cpus: "32-63", memory: 125Gi, distances: {0: 21, 1: 10}}
`

// beginning returns a pod with an init container and an app.
func beginning(name, init, app string) string {
	return manifestOf(name, fmt.Sprintf(`initContainers:
  - {name: init, image: sim.local/app, resources: {limits: {%s}}}
  containers: [{name: main, image: sim.local/app, resources: {limits: {%s}}}]`, init, app),
		"init: exit=0 after=1ms")
}

// A small init container does not put its pod on a node where the app has no room.
func TestInitContainersGoWithWhatFollows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy string
		memory bool
		pods   []string // init / app
		want   []string // the NUMA nodes of init / app; in memory tests, their memory nodes
	}{
		"CPUs": {policy: "single-numa-node",
			pods: []string{"cpu: 1, memory: 1Gi / cpu: 26, memory: 1Gi",
				"cpu: 1, memory: 1Gi / cpu: 26, memory: 1Gi"},
			want: []string{"0 / 0", "1 / 1"}},
		"devices": {policy: "single-numa-node",
			pods: []string{"cpu: 100m / cpu: 100m, example.com/gpu: 1",
				"cpu: 100m, example.com/gpu: 1 / cpu: 100m, example.com/gpu: 4"},
			want: []string{" / 0", "1 / 1"}},
		"memory": {policy: "none", memory: true,
			pods: []string{"cpu: 1, memory: 2Gi / cpu: 1, memory: 200Gi"}, want: []string{"0-1 / 0-1"}},
		"memory, restricted": {policy: "restricted", memory: true,
			pods: []string{"cpu: 100m, memory: 2Gi / cpu: 100m, memory: 200Gi"}, want: []string{"0 / 0-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := harness.New(t)
			n.Settings["topologyManagerPolicy"] = test.policy
			if test.memory {
				staticMemory(n)
			}
			machine := filepath.Join(n.Dir, "two.yaml")
			if err := os.WriteFile(machine, []byte(twoNodes), 0o600); err != nil {
				t.Fatal(err)
			}
			n.Args = append(n.Args, "--topology-from="+machine)
			n.Start()
			n.Plugin("example.com/gpu", "--devices=8", "--nodes=0-1")
			for i, p := range test.pods {
				init, app, _ := strings.Cut(p, " / ")
				n.Pod(fmt.Sprint("p", i), beginning(fmt.Sprint("p", i), init, app))
				n.AwaitPhase(fmt.Sprintf("p%d-node", i), v1.PodRunning)
			}
			for i, want := range test.want {
				var got []string
				for _, c := range []string{"init", "main"} {
					row := placementOf(t, n, fmt.Sprintf("p%d-node/%s", i, c))
					if test.memory {
						got = append(got, row.MemoryNodes)
					} else {
						got = append(got, row.NUMANodes)
					}
				}
				if strings.Join(got, " / ") != want {
					t.Errorf("p%d is on %q, want %s", i, got, want)
				}
			}
			last := fmt.Sprintf("p%d-node", len(test.pods)-1)
			if text, err := explainPod(t, n, last); err != nil || !strings.Contains(text,
				"In the order in which they start the containers had no place.") {
				t.Errorf("explain: %s, %v", text, err)
			}
		})
	}
}
