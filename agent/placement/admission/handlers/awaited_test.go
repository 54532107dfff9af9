package handlers

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

// A pod waits for volumes that another version may bring, and is refused those that none will.
func TestVolumes(t *testing.T) {
	check := Volumes(func(p *v1.Pod) (bool, error) {
		if p.Name == "without" {
			return false, nil
		}
		return p.Name == "never", errors.New("no such volumes")
	})
	for name, want := range map[string]*decide.Refusal{
		"without": nil,
		"waits":   {Reason: ReasonNoVolume, Message: "no such volumes", Wait: true},
		"never":   {Reason: ReasonNoVolume, Message: "no such volumes"},
	} {
		got := check(decide.Attempt{Demand: decide.DemandOf(podtest.New(name), nil, topology.Rules{})})
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
