package placement

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/internal/mailbox"
)

// Claims are the resource claims of the node's pods.
type Claims struct {
	*claims.Manager                // nil: the node is in no cluster
	Changed         *mailbox.Topic // what pods that wait lack of them
	unprepared      *mailbox.Box[types.UID]
	usable          func() []string
}

// claims makes what has claims prepared.
func (p *Placement) claims(ctx context.Context) (c Claims, err error) {
	c.Changed, c.unprepared = new(mailbox.Topic), mailbox.New[types.UID]()
	own := &ownDrivers{Drivers: p.Drivers, on: p.Hardware.Get().CPUDriver != ""}
	c.usable = own.usable(p.Drivers.AllUsable)
	if p.Cluster == nil {
		return c, nil
	}
	cdiDirs, err := p.Client.CDIDirs(ctx)
	if err != nil {
		return c, err
	}
	c.Manager, err = claims.New(claims.Config{
		Dir: p.Settings.RootDir, BootID: p.BootID, Booted: p.Booted,
		Get: p.Cluster.Claim, Drivers: own, DriversChanged: mailbox.Subscribe(p.Drivers.Changed),
		Place: p.Cluster.Place, CDIDirs: cdiDirs,
		Ends: claims.Ends{
			Changed: c.Changed.Publish, Unprepared: c.unprepared.Put, Tell: p.Events.About,
		},
		OptionalCalls: p.Enabled("DRAOptionalNodeOperations"),
		Groups:        p.Enabled("DRAWorkloadResourceClaims"),
		Node:          p.Cluster.Object, Registry: p.Registry,
	})
	own.manager = c.Manager
	switch recovered := c.recovered(); {
	case err != nil:
		err = p.Quarantined(ctx, err, "ResourceClaimsQuarantined", recovered)
	case recovered != "":
		klog.FromContext(ctx).Info("The record of resource claims is completed", "from", recovered)
		p.Events.OnNode(v1.EventTypeWarning, "ResourceClaimsRecovered", recovered)
	}
	return c, err
}

func (c Claims) recovered() string {
	if c.Manager == nil {
		return ""
	}
	return c.Manager.Recovered()
}

// Usable lists the drivers of claims that have a usable plugin, the agent's own among them.
func (c Claims) Usable() []string { return c.usable() }

// Admission returns what admission knows of claims; nil: no pod has any.
func (c Claims) Admission() admission.Claims {
	if c.Manager == nil {
		return nil
	}
	return claims.Admission{Manager: c.Manager}
}

// Holds reports whether the pod holds claims.
func (c Claims) Holds(pod types.UID) bool { return c.Manager != nil && c.Held(pod) != nil }
