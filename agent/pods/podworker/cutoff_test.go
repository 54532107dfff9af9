package podworker

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
)

// A container whose start was given up with whoever began it is made again at once, as the same attempt,
// or as the next if the runtime keeps its record; one that could not be started counts.
func TestStartCutOff(t *testing.T) {
	const cutOff = "failed to create containerd task: context canceled"
	for name, c := range map[string]struct {
		message, want string
		kept          bool
	}{
		"cut off":          {cutOff, "StartContainer web #0", false},
		"cut off and kept": {cutOff, "StartContainer web #1", true},
		"wrong":            {"exec: no such file or directory", "StartContainer web #1", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.before = func(_ context.Context, a Action) error {
					if c.kept && a.Kind == RemoveContainers {
						return errors.New("cannot delete running task")
					}
					return nil
				}
				n.Update(Desired{Pod: podOf("a", "Always web")})
				n.at(2 * time.Second)
				n.mu.Lock()
				n.log = nil
				record := &n.machines["a"].seen.Containers[0]
				record.State, record.StartedAt = cri.ContainerExited, time.Time{}
				record.Exit = cri.Exit{
					At: time.Now(), Code: 128, Reason: "StartError", Message: c.message,
				}
				n.mu.Unlock()
				n.Wake("a")
				n.at(3 * time.Second)
				n.mu.Lock()
				defer n.mu.Unlock()
				if all := strings.Join(n.log, "; "); !strings.Contains(all, c.want) {
					t.Errorf("it did %s, want %s", all, c.want)
				}
			})
		})
	}
}
