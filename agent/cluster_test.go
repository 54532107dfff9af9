package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/addresses"
	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/lifecycle"
	"github.com/numalet/numalet/agent/machine"
	"github.com/numalet/numalet/agent/runtimeup"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

func podFrom(from string) *v1.Pod {
	return podtest.New("", podtest.Annotations(source.AnnotationSource, from))
}

// TestFactsChanged: the node's status is looked at again when the runtime is observed, and when it is
// no more.
func TestFactsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		observer, err := lifecycle.New(lifecycle.Config{Client: listed{away: &away}})
		if err != nil {
			t.Fatal(err)
		}
		changed := factsChanged(node{
			hardware: &machine.Current{}, host: host{addresses: &addresses.Addresses{}},
			runtime: runtime{up: runtimeup.New(runtimeup.Config{}, cri.RuntimeStatus{})},
		}, parts{observer: observer}, &links{})
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

// listed is a runtime without pods, that can be listed or not.
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

// TestFlaws: a pod of the API server that breaks a rule is refused in words, and another source's
// is not looked at.
func TestFlaws(t *testing.T) {
	bad := podFrom(source.APISource)
	bad.Spec.TerminationGracePeriodSeconds = new(int64)
	bad.Spec.SecurityContext = &v1.PodSecurityContext{}
	got := flaws(decide.Attempt{Pod: bad})
	if got == nil || got.Reason != source.FailedValidation || got.Message == "" || got.Wait {
		t.Errorf("a pod without a name, a UID and containers: %+v", got)
	}
	if got := flaws(decide.Attempt{Pod: podFrom(source.FileSource)}); got != nil {
		t.Errorf("a static pod: %+v", got)
	}
}
