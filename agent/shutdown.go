package agent

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/shutdown"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/syncloop"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// shutDown is why pods end when the machine goes down.
func shutDown() pod.Why {
	return pod.Why{Reason: podspec.ReasonShutdown, Message: shutdown.Message}
}

// downed are the pods that an earlier run of the agent was about to end since the machine goes down.
func (h host) downed(p *v1.Pod) (why pod.Why, grace time.Duration, ok bool) {
	grace, ok = h.marks.Doomed(p)
	return shutDown(), grace, ok
}

// newShutdown ends pods in order when the machine goes down.
func newShutdown(n node, h host, pods podDomain) (*shutdown.Manager, error) {
	statuses := pods.statuses
	runs := func(uid types.UID) bool {
		observed, _ := h.pleg.Get(uid)
		return observed.Running()
	}
	c := shutdown.Config{
		Logind: shutdown.Logind{DropIns: "/etc/systemd/logind.conf.d"}, Announced: h.down,
		Marks: h.marks, Tell: n.events.OnNode, Registry: n.registry,
		PodFacts: shutdown.PodFacts{
			Pods:  func() []*v1.Pod { return statuses.Running(runs) },
			Grace: podworker.Grace, Known: pods.mayHave,
			Left: func(uid types.UID) bool {
				state := n.store.State()
				return statuses.Left(uid) || runs(uid) || !state.Pods[uid].IsEmpty() ||
					slices.ContainsFunc(state.Owed, func(o allocation.Owed) bool { return o.UID == uid })
			},
			Changed: mailbox.Subscribe(statuses.Changes(), n.store.Changes()),
			Synced:  statuses.pubs.synced,
		},
		End: func(p *v1.Pod, grace time.Duration) {
			statuses.events.Put(syncloop.Killed(p.UID, shutDown(), grace))
		},
	}
	if n.cfg.Gates.Enabled("GracefulNodeShutdown") {
		c.Waves = shutdown.Waves(&n.cfg.Kubelet)
		if n.cfg.Gates.Enabled("GracefulNodeShutdownBasedOnPodPriority") {
			c.Dir = n.cfg.RootDir
		}
	}
	return shutdown.New(c)
}
