package placement

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// Claims are unprepared only once all pods of the node are known. A pod keeps its claims while it is active, or
// while something of it runs; of pods that run those with claims are told.
func TestClaiming(t *testing.T) {
	whole := false
	claims := podtest.Claims("gpu=gpu-1")
	p := Pods{
		Whole: func() bool { return whole },
		Active: func() []*v1.Pod {
			return []*v1.Pod{podtest.New("runs", podtest.Containers("main"), claims),
				podtest.New("waits", podtest.Containers("main"), claims), podtest.New("plain")}
		},
		Running: func() []cri.Pod {
			ready := []cri.Sandbox{{Ready: true}}
			return []cri.Pod{{UID: "runs", Sandboxes: ready}, {UID: "plain", Sandboxes: ready},
				{UID: "ending", Sandboxes: ready}, {UID: "ended"}}
		},
	}
	if _, known := p.claiming(); known {
		t.Error("the pods are known before all sources were heard")
	}
	whole = true
	got, known := p.claiming()
	if !known || !got.Active.Equal(sets.New[types.UID]("runs", "waits", "plain", "ending")) {
		t.Errorf("active are %v, known: %v", got.Active, known)
	}
	if len(got.Running) != 1 || got.Running[0].UID != "runs" {
		t.Errorf("of these run with claims %v", got.Running)
	}
}
