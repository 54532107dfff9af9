package pods

import (
	"slices"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology/podspec"
)

// A pod that is not known may be the node's until what all sources had was taken in: that they have sent
// it is not enough.
func TestMayHave(t *testing.T) {
	s := &Statuses{Store: podstatus.New(podstatus.Config{}), publishers: publishers{complete: new(atomic.Bool)}}
	if !s.MayHave("u") {
		t.Error("a pod is gone before the sources were heard")
	}
	s.heard()
	if s.MayHave("u") {
		t.Error("a pod that no source has may be there")
	}
}

// Each publisher gets all pods of the API server; the mirror pods are never run.
func TestDelivered(t *testing.T) {
	var got [][]*v1.Pod
	hears := func(all []*v1.Pod) { got = append(got, all) }
	p := publishers{all: []Publisher{{Delivered: hears}, {}, {Delivered: hears}}}
	shown := podtest.New("a", podtest.Annotations(podspec.AnnotationSource, podspec.APISource,
		podspec.AnnotationMirror, ""))
	run := podtest.New("b", podtest.Annotations(podspec.AnnotationSource, podspec.APISource))
	all := []*v1.Pod{shown, run}
	if runs := p.delivered(all); !slices.Equal(runs, []*v1.Pod{run}) {
		t.Errorf("%v are to run", runs)
	}
	if len(got) != 2 || !slices.Equal(got[0], all) || !slices.Equal(got[1], all) {
		t.Errorf("the publishers got %v", got)
	}
}
