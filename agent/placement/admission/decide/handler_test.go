package decide

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/internal/podtest"
)

// A lack of counted resources that is reported before a handler's refusal is named as one.
func TestShortageBeforeALateRefusal(t *testing.T) {
	room := allocation.Room{Allocatable: v1.ResourceList{
		v1.ResourcePods: resource.MustParse("9"), v1.ResourceCPU: resource.MustParse("1")}}
	for cpu, want := range map[string]allocation.Rejection{
		"cpu=1": {Reason: "NodePorts"},
		"cpu=2": {Reason: "OutOfcpu", Message: "Node didn't have enough resource: cpu, requested: 2000, " +
			"used: 0, capacity: 1000", Short: v1.ResourceCPU},
	} {
		r := &Request{Demand: Demand{Pod: podtest.New("p", podtest.Containers("c "+cpu))}}
		refusal := (&Refusal{Reason: "NodePorts", Late: true}).orShort(room, r)
		if got := (Decision{}).stopped(refusal, true).Rejection; *got != want {
			t.Errorf("%s: %+v, want %+v", cpu, *got, want)
		}
	}
}
