package agent

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/handler"
	"github.com/numalet/numalet/agent/probe"
	"github.com/numalet/numalet/agent/version"
)

// newHandlers does what probes and hooks are made of.
func newHandlers(n node) *handler.Handlers {
	return handler.New(handler.Config{
		Runtime: n.client.Runtime(), Version: version.Short(),
	})
}

// newProber probes containers; wake is told of pods of which something else was found than before.
func newProber(n node, wake func(types.UID)) (*probe.Prober, error) {
	return probe.New(probe.Config{
		Ask: newHandlers(n).Probe, Tell: n.events.Pod, Wake: wake,
	})
}
