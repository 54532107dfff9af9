package numa_test

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestQuota boots a small machine whose agent has its directory on filesystems that count projects.
func TestQuota(t *testing.T) {
	kernel := require(t)
	began := time.Now()
	m := usualMachine(kernel, makeDisk(t, kernel, nil))
	m.sockets = ""
	m.settings = []string{"NUMALET_HUGE="}
	results := run(t, m, "quota:.,guest:^TestQuotaNode")
	results.print(os.Stdout, fmt.Sprintf("project quotas, %.0f s", time.Since(began).Seconds()))
	results.subtests(t)
}
