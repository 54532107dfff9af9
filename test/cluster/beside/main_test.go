// Package beside gives the same pods to numalet and to the stock kubelet, each as a node of one
// control plane with a containerd of its own, and compares what clients see: statuses, events, the
// node, metrics and statistics. What differs is in a table, with the reason, or it is a mistake.
package beside

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
)

// parallel bounds the tests at the same time, however many CPUs there are: they mostly wait. More
// would need more than the 128 inotify instances that a user has by default, of which a kubelet
// takes seven.
const parallel = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", parallel); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	rig.Main(m)
}
