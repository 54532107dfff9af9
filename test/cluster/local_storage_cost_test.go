package cluster_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// TestLocalStorageCost tells how much CPU time each agent takes to know what 110 pods with 10,000
// files each use, beyond what it takes for these pods without files. Volumes are measured six times
// as often as usual, so that the figures do not take all day. It asserts nothing, and runs if
// NUMALET_STORAGE_COST is set.
func TestLocalStorageCost(t *testing.T) {
	if os.Getenv("NUMALET_STORAGE_COST") == "" {
		t.Skip("NUMALET_STORAGE_COST is not set")
	}
	const pods, files, period = 110, 10_000, 10 * time.Second
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			s := newSideWith(t, agent, map[string]any{"volumeStatsAggPeriod": period.String(), "maxPods": pods})
			var all []*v1.Pod
			for i := range pods {
				s.Apply(storageCase{name: fmt.Sprint("p", i), containers: container("main", "", "cache"),
					volumes: "{name: cache, emptyDir: {sizeLimit: 1Gi}}"}.manifest(s.Name))
			}
			for i := range pods {
				all = append(all, await(t, s.Cluster, s.Namespace, fmt.Sprint("p", i), runs))
			}
			used := func(window time.Duration) float64 {
				time.Sleep(2 * period) // pods that begin, and files that are new, are measured more often
				before := s.CPU()
				time.Sleep(window)
				return 100 * (s.CPU() - before).Seconds() / window.Seconds()
			}
			without := used(3 * period)
			for _, p := range all {
				dir := filepath.Dir(filepath.Join(s.Root, "pods", string(p.UID), cacheFile))
				for i := range files {
					sub := filepath.Join(dir, strconv.Itoa(i/100))
					if i%100 == 0 {
						must(t, os.MkdirAll(sub, 0o755))
					}
					must(t, os.WriteFile(filepath.Join(sub, strconv.Itoa(i)), nil, 0o600))
				}
			}
			with := used(8 * period) // numalet waits four at most
			fmt.Printf("%s: %.2f %% of a CPU without files, %.2f %% with them: %.2f %% for them\n", agent,
				without, with, with-without)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
