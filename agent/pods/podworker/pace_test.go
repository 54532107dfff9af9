package podworker

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/cri"
)

// A runtime whose things are not as they should be, or are gone as soon as they are there, and that
// answers at once is not kept busy.
func TestCreationsHaveABackOff(t *testing.T) {
	for _, tc := range []struct {
		name string
		// spoil is done to the machine before each look at it.
		spoil func(m *machine)
	}{
		{"sandboxes without an address", func(m *machine) {
			m.eachSandbox(func(s *cri.Sandbox) { s.IPs = nil })
		}},
		{"sandboxes that die", func(m *machine) { m.loseSandbox() }},
		{"sandboxes that vanish", func(m *machine) {
			m.seen.Sandboxes, m.seen.Containers = nil, nil
		}},
		{"sandboxes that vanish once something runs", func(m *machine) {
			if len(m.seen.Containers) == 3 {
				m.seen.Sandboxes, m.seen.Containers = nil, nil
			}
		}},
		{"containers that vanish", func(m *machine) { m.seen.Containers = nil }},
		{"containers that do not start", func(m *machine) {
			for i := range m.seen.Containers {
				m.seen.Containers[i].State = cri.ContainerCreated
			}
		}},
		{"containers of another definition", func(m *machine) {
			if len(m.seen.Containers) > 2 {
				m.seen.Containers[0].From.Hash = "another"
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.programs["init"] = []run{{time.Second, 0}}
				made := map[string]int{}
				n.during = func() {
					n.mu.Lock()
					defer n.mu.Unlock()
					if m := n.machines["a"]; m != nil {
						tc.spoil(m)
					}
				}
				n.before = func(ctx context.Context, a Action) error {
					n.mu.Lock()
					defer n.mu.Unlock()
					if a.Kind == CreateSandbox || a.Kind == StartContainer {
						made[fmt.Sprint(a.Kind, a.Container)]++
					}
					if len(n.log) > 1000 {
						t.Errorf("%d actions after %v", len(n.log), time.Since(n.begun))
						n.mu.Unlock()
						<-ctx.Done()
						n.mu.Lock()
					}
					return nil
				}
				n.Update(Desired{Pod: podOf("a", "Always init side~ | web")})
				n.at(time.Hour)
				for what, times := range made {
					t.Logf("%s: %d times", what, times)
					if times > 20 {
						t.Errorf("%s %d times in an hour", what, times)
					}
				}
			})
		})
	}
}
