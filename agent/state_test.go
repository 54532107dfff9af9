package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/node/runtimeup"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
)

// observed is a base with a runtime that can be listed or not.
func observed(t *testing.T, away *atomic.Bool) base {
	t.Helper()
	pleg, err := lifecycle.New(lifecycle.Config{Client: listed{away: away}})
	if err != nil {
		t.Fatal(err)
	}
	cfg := new(config.Config)
	cfg.Kubelet.EnableServer = new(bool)
	return base{pleg: pleg, host: &node.Host{
		Node:     node.Node{Identity: node.Identity{Settings: cfg}},
		Pressure: new(eviction.Pressure), Down: new(shutdown.Announced),
		Addresses: addresses.New(t.Context(), addresses.Config{Node: "n", Standalone: true}),
		Up:        runtimeup.New(runtimeup.Config{}, cri.RuntimeStatus{}),
	}}
}

// listed is a runtime without pods.
type listed struct {
	lifecycle.Runtime
	away *atomic.Bool
}

func (l listed) Pods(context.Context) ([]cri.Pod, error) {
	if l.away.Load() {
		return nil, errors.New("the runtime is away")
	}
	return nil, nil
}

func (listed) Events(ctx context.Context, _ func(), _ func(cri.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

// The node's state is asked for again when the runtime is observed, and when it is no longer.
func TestStateFollowsTheObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		b := observed(t, &away)
		changed := mailbox.Subscribe(b.changes()...)
		go b.pleg.Run(t.Context())
		for _, when := range []string{"observed", "no longer observed", "observed again"} {
			synctest.Wait()
			select {
			case <-changed:
			default:
				t.Errorf("%s: nobody was told", when)
			}
			away.Store(!away.Load())
			time.Sleep(4 * time.Minute)
		}
	})
}

// Admission and the node's conditions are made of the same state, and the observer counts.
func TestStateIsOne(t *testing.T) {
	b := observed(t, new(atomic.Bool))
	b.host.Info.BootID = "boot"
	var f nodestatus.Facts
	b.describe(&f)
	if f.Info.BootID != "boot" {
		t.Errorf("of the host the conditions have %+v", f.Info)
	}
	asked := b.state()
	if !asked.Equal(f.State) || len(asked.NotReady) < 2 {
		t.Errorf("admission has %+v, the node's conditions %+v", asked, f.State)
	}
}
