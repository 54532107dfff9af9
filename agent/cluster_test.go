package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/numalet/numalet/agent/cluster/mirror"
	"github.com/numalet/numalet/agent/cluster/statuses"
	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/runtimeup"
	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// The node's status is made again when the runtime is observed, and when it is no longer.
func TestNodeStatusFollowsTheObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		observer, err := lifecycle.New(lifecycle.Config{Client: listed{away: &away}})
		if err != nil {
			t.Fatal(err)
		}
		h := host{
			short:     new(eviction.Pressure),
			down:      new(shutdown.Announced),
			pleg:      observer,
			addresses: &addresses.Addresses{},
			up:        runtimeup.New(runtimeup.Config{}, cri.RuntimeStatus{}),
		}
		changed := mailbox.Subscribe(h.nodeEnds(node{self: self{cfg: new(config.Config)}},
			deviceDomain{}, mountDomain{used: new(mailbox.Topic)}).changed...)
		go observer.Run(t.Context())
		synctest.Wait()
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

// listed is a runtime without pods that can be listed or not.
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

// Of what the API server has for the node, the mirror pods are never run.
func TestMirrorsDoNotRun(t *testing.T) {
	s, err := statuses.New(statuses.Config{Client: fake.NewClientset()})
	if err != nil {
		t.Fatal(err)
	}
	m, err := mirror.New(mirror.Config{Client: fake.NewClientset(), Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	var told publishers
	told.add("pod statuses", s)
	told.add("mirror pods", m)
	shown := podtest.New("a", podtest.Annotations(podspec.AnnotationSource, podspec.APISource,
		podspec.AnnotationMirror, ""))
	run := podtest.New("b", podtest.Annotations(podspec.AnnotationSource, podspec.APISource))
	all := []*v1.Pod{shown, run}
	if got := told.saw(all); len(got) != 1 || got[0] != run || all[0] != shown {
		t.Errorf("%v are to run", got)
	}
}
