package agent

import (
	"time"

	"github.com/numalet/numalet/agent/node/daemons"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// daemonsPeriod is the time between two looks at the cgroups of what runs beside pods.
const daemonsPeriod = time.Minute

// daemonNames says in which cgroups the agent and others are to run.
func (n node) daemonNames() daemons.Names {
	k := &n.cfg.Kubelet
	return daemons.Names{
		Agent: k.KubeletCgroups, Runtime: n.cfg.RuntimeCgroups, System: k.SystemCgroups,
	}
}

// newDaemons keeps processes beside pods in their cgroups. The kernel may take long for each that
// is moved.
func newDaemons(n node, h host) ([]part.Part, error) {
	d, err := daemons.New(n.daemonNames(), n.cfg.Kubelet.ContainerRuntimeEndpoint)
	if d == nil {
		return nil, err
	}
	return []part.Part{part.Chore(housekeeping.Task{
		Name: "cgroups of daemons", Period: daemonsPeriod, First: time.Millisecond,
		On: []mailbox.Source{h.up.Changes()}, Run: d.Look,
	})}, nil
}
