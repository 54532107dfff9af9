package agent

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/agent/pods/probe"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/version"
)

// probeDomain probes containers.
type probeDomain struct {
	*probe.Prober
	woken *mailbox.Box[types.UID] // pods whose probes found something else
}

func newProbes(n node, client *cri.Client) (p probeDomain, err error) {
	p.woken = mailbox.New[types.UID]()
	p.Prober, err = probe.New(probe.Config{
		Ask: handler.New(handler.Config{
			Runtime: client.Runtime(), Version: version.Short(),
			HTTP2: n.cfg.Gates.Enabled("H2CContainerProbe"),
			TLS:   n.cfg.Gates.Enabled("GRPCContainerProbeTLS"),
		}).Probe,
		Tell: n.events.Container, Wake: p.woken.Put,
	})
	return p, err
}

// follow probes, and wakes the workers of pods whose probes found something else.
func (p probeDomain) follow(wake func(types.UID)) []part.Part {
	return []part.Part{part.Of("probes", p.Run), part.Each("results of probes", p.woken, wake)}
}
