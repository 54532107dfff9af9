package topology

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

// MaxID is the largest accepted CPU or node id: the kernel's largest NR_CPUS is 8192.
const MaxID = 1<<16 - 1

// ParseCPUs reads a list of CPUs or nodes, like "0-3,8". It refuses ids beyond MaxID, like in
// "0-4000000000", before they take memory.
func ParseCPUs(text string) (cpuset.CPUSet, error) {
	count := 0
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		low, lowErr := strconv.ParseUint(first, 10, 64)
		high, highErr := strconv.ParseUint(last, 10, 64)
		if lowErr != nil || highErr != nil || high < low {
			continue // Parse refuses it
		}
		if high > MaxID {
			return cpuset.New(), fmt.Errorf("%d is larger than %d, the largest id", high, MaxID)
		}
		if count += int(high-low) + 1; count > 4*MaxID {
			return cpuset.New(), fmt.Errorf("more than %d ids", 4*MaxID)
		}
	}
	return cpuset.Parse(text)
}
