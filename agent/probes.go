package agent

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/deadline"
	"github.com/numalet/numalet/agent/handler"
	"github.com/numalet/numalet/agent/pod"
	"github.com/numalet/numalet/agent/probe"
	"github.com/numalet/numalet/agent/syncloop"
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
		Ask: newHandlers(n).Probe, Tell: n.events.Container, Wake: wake,
	})
}

// newDeadlines ends pods that have been active for too long.
func newDeadlines(n node, p parts, l *links) *deadline.Keeper {
	return deadline.New(deadline.Config{
		Pods: p.statuses.List, Changed: p.statuses.Changes(),
		Kill: func(late *v1.Pod) {
			n.events.Pod(late, v1.EventTypeNormal, deadline.Reason, deadline.Message)
			l.events.Put(syncloop.Event{UID: late.UID, Event: pod.Event{Kind: pod.Killed,
				Why: pod.Why{Reason: deadline.Reason, Message: deadline.Message}}})
		},
	})
}
