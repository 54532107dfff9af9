package handlers

import (
	"testing"

	"github.com/numalet/numalet/agent/node/nodestatus"
	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// While the machine goes down nobody is admitted, however critical.
func TestShutdown(t *testing.T) {
	pod := podtest.New("a", podtest.Priority(podspec.CriticalPriority))
	if r := Shutdown(decide.Attempt{Demand: decide.DemandOf(pod, nil, topology.Rules{})}); r != nil {
		t.Errorf("refused on a node that stays: %+v", r)
	}
	r := Shutdown(decide.Attempt{Demand: decide.DemandOf(pod, nil, topology.Rules{}), State: nodestatus.State{ShuttingDown: true}})
	if r == nil || r.Reason != "NodeShutdown" ||
		r.Message != "Pod was rejected as the node is shutting down." {
		t.Errorf("got %+v", r)
	}
}
