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

// hangingMount is a mount(8) that hangs for the server gone until a file release exists, and then
// mounts an empty file system.
const hangingMount = `#!/bin/sh
case "$*" in
*gone:*) ;;
*) exec /bin/mount "$@" ;;
esac
echo "$*" >>"$0.calls"
while [ ! -e "$0.release" ]; do sleep 0.1; done
for at; do :; done
/bin/mount -t tmpfs numalet-test "$at" && echo done >>"$0.calls"
`

// TestNFSThatHangs: a mount from a server that is gone delays its own pod, but no other pod and not
// the end of the agent. The pod runs once the server is back, and the volume is unmounted with the
// pod.
func TestNFSThatHangs(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounts need root")
	}
	n := harness.New(t)
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	mount := filepath.Join(dir, "mount")
	if err := os.WriteFile(mount, []byte(hangingMount), 0o755); err != nil {
		t.Fatal(err)
	}
	release := func() {
		if err := os.WriteFile(mount+".release", nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(release)
	n.Program = []string{"env", "PATH=" + dir + ":" + os.Getenv("PATH"), binary}
	n.Start()
	calls := func(want int, what string) {
		n.Eventually(fmt.Sprint(want, " lines of ", what), func() error {
			text, err := os.ReadFile(mount + ".calls")
			if got := strings.Count(string(text), what); err == nil && got != want {
				err = fmt.Errorf("there are %d: %s", got, text)
			}
			return err
		})
	}
	n.Pod("hangs", manifestOf("hangs", `containers: [{name: main, image: sim.local/app,
   volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, nfs: {server: gone, path: /x, readOnly: true}}]`))
	calls(1, "-t nfs -o ro gone:/x "+n.Root)
	n.Pod("other", manifestOf("other", `containers: [{name: main, image: sim.local/app,
   volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, emptyDir: {medium: Memory}}]`))
	n.AwaitPhase("other-node", v1.PodRunning)
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	n.Start()
	calls(2, "gone:/x")
	release()
	calls(2, "done")
	n.AwaitPhase("hangs-node", v1.PodRunning)
	n.RemovePod("hangs")
	n.AwaitGone("hangs-node")
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, n.Root) && strings.Contains(line, "~nfs") {
			t.Errorf("still mounted: %s", line)
		}
	}
}
