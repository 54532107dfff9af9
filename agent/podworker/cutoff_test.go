package podworker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
)

// A container whose start was given up with whoever began it is made again at once, as the same attempt;
// one that could not be started counts.
func TestStartCutOff(t *testing.T) {
	for message, want := range map[string]string{
		"failed to create containerd task: context canceled": "StartContainer web #0",
		"exec: no such file or directory":                    "StartContainer web #1",
	} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t)
			n.Update(Desired{Pod: podOf("a", "Always web")})
			n.at(2 * time.Second)
			n.mu.Lock()
			n.log = nil
			c := &n.machines["a"].seen.Containers[0]
			c.State, c.StartedAt = cri.ContainerExited, time.Time{}
			c.Exit = cri.Exit{At: time.Now(), Code: 128, Reason: "StartError", Message: message}
			n.mu.Unlock()
			n.Wake("a")
			n.at(3 * time.Second)
			n.mu.Lock()
			defer n.mu.Unlock()
			if all := strings.Join(n.log, "; "); !strings.Contains(all, want) {
				t.Errorf("%s: it did %s, want %s", message, all, want)
			}
		})
	}
}
