package peer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// profile writes a profile of the agent to a file in NUMALET_PEER_PROFILES, if that names a folder:
// where a figure is not what it should be, it says why. The profile covers what comes until end is
// called, at most so long; a length of 0 is a profile of the moment. It costs CPU of its own.
func (n *node) profile(name, path string, most time.Duration) (end func()) {
	dir := os.Getenv("NUMALET_PEER_PROFILES")
	if dir == "" {
		return func() {}
	}
	get := n.cluster.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes", n.Name, "proxy",
		"debug", "pprof", path).Timeout(most + time.Minute)
	if most > 0 {
		get.Param("seconds", fmt.Sprint(most.Seconds()))
	}
	var work sync.WaitGroup
	work.Go(func() {
		raw, err := get.DoRaw(context.Background())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, n.Name+"."+name), raw, 0o644)
		}
		if err != nil {
			n.t.Errorf("profile %s: %v", name, err)
		}
	})
	return work.Wait
}
