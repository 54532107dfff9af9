package agent

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/cluster/slices"
	"github.com/numalet/numalet/agent/placement/admission"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/agent/placement/health"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/topology"
)

// driverDomain is the node's drivers of resource claims.
type driverDomain struct {
	*dra.Drivers
	changed *mailbox.Topic       // which can be called
	gone    *mailbox.Box[string] // drivers without a usable plugin
	health  *health.Drivers      // what they say of their devices
	ill     *mailbox.Topic       // health is another
}

func newDrivers(ctx context.Context, n node) (d driverDomain, err error) {
	d.ill = new(mailbox.Topic)
	d.health = health.OpenDrivers(ctx, n.cfg.RootDir, d.ill.Publish)
	d.changed, d.gone = new(mailbox.Topic), mailbox.New[string]()
	d.Drivers, err = dra.New(dra.Config{
		Changed: d.changed.Publish, Gone: d.gone.Put, Health: d.health.Hear,
		Registry: n.registry,
	})
	return d, err
}

// cdi returns what names the devices of a pod's claims by their first CDI id, and tells which are
// prepared.
func (c claimDomain) cdi(pod types.UID) func(types.UID, claim.Device) (string, bool) {
	prepared := sync.OnceValue(func() (all []claims.Prepared) {
		if c.Manager != nil {
			all = c.Prepared(pod)
		}
		return all
	})
	return func(uid types.UID, device claim.Device) (string, bool) { // of a pod with claims
		for _, one := range prepared() {
			for _, d := range one.Devices {
				if one.UID == uid && d.Driver == device.Driver && d.Pool == device.Pool &&
					d.Name == device.Name {
					return strings.Join(d.CDI[:min(1, len(d.CDI))], ""), true
				}
			}
		}
		return "", false
	}
}

// claimDomain is the resource claims of the node's pods.
type claimDomain struct {
	*claims.Manager // nil: the node is in no cluster
	drivers         driverDomain
	slices          *slices.Slices          // nil as Manager
	changed         *mailbox.Topic          // what pods that wait lack of them
	settled         *mailbox.Box[types.UID] // pods whose claims are unprepared
}

// claimEnds say which pods may use claims, and have them looked at again.
type claimEnds struct {
	again    func(types.UID)
	own      func() *v1.Node // nil: it is not known
	statuses *podstatus.Store
	pleg     *lifecycle.PLEG
	heard    *atomic.Bool // every source of pods was heard
}

// newClaims makes what has claims prepared.
func newClaims(ctx context.Context, n node, own func() *v1.Node, runtime *cri.Client, drivers driverDomain) (
	c claimDomain, err error) {
	c.drivers, c.changed, c.settled = drivers, new(mailbox.Topic), mailbox.New[types.UID]()
	if n.kube == nil {
		return c, nil
	}
	cdiDirs, err := runtime.CDIDirs(ctx)
	if err != nil {
		return c, err
	}
	all := &ownDrivers{Drivers: drivers, on: n.hardware.Get().CPUDriver != ""}
	c.slices = slices.New(slices.Config{
		Client: n.kube.Main(), Node: n.name, Usable: all.usable(drivers.AllUsable),
		Attributes: n.cfg.Placement.Attributes(),
		Machine:    func() *topology.Machine { return n.hardware.Get().Machine },
		Changed:    c.changed.Publish, Restored: mailbox.Subscribe(n.kube.Restored()),
	})
	c.Manager, err = claims.New(claims.Config{
		Dir: n.cfg.RootDir, BootID: n.bootID, Booted: n.booted,
		Get: func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
			return n.kube.Main().ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
		},
		Drivers: all, DriversChanged: mailbox.Subscribe(drivers.changed),
		Place: c.slices.Place, CDIDirs: cdiDirs,
		Ends: claims.Ends{
			Changed: c.changed.Publish, Settled: c.settled.Put, Tell: n.events.About,
		},
		OptionalCalls: n.cfg.Gates.Enabled("DRAOptionalNodeOperations"),
		Groups:        n.cfg.Gates.Enabled("DRAWorkloadResourceClaims"),
		Node:          own, Registry: n.registry,
	})
	all.manager = c.Manager
	switch recovered := c.recovered(); {
	case err != nil:
		err = n.quarantined(ctx, err, "ResourceClaimsQuarantined", recovered)
	case recovered != "":
		klog.FromContext(ctx).Info("The record of resource claims is completed", "from", recovered)
		n.events.OnNode(v1.EventTypeWarning, "ResourceClaimsRecovered", recovered)
	}
	return c, err
}

func (c claimDomain) recovered() string {
	if c.Manager == nil {
		return ""
	}
	return c.Manager.Recovered()
}

// placer says where the devices of claims are that are asked about.
func (c claimDomain) placer(n node) fit.Placer {
	out := fit.Placer{Table: n.cfg.Placement.Attributes(),
		Machine: func() *topology.Machine { return n.hardware.Get().Machine }}
	if c.slices != nil {
		out.Place = c.slices.Place
	}
	return out
}

// pods returns those that have not ended, and those that run.
func (e claimEnds) pods() (out claims.Pods, known bool) {
	if !e.heard.Load() {
		return out, false
	}
	out.Active = sets.New[types.UID]()
	for _, pod := range e.pleg.All() {
		if pod.Running() {
			out.Active.Insert(pod.UID)
		}
	}
	for _, pod := range e.statuses.Active() {
		if claim.Any(pod) && out.Active.Has(pod.UID) {
			out.Running = append(out.Running, pod)
		}
		out.Active.Insert(pod.UID)
	}
	return out, true
}

// follow has claims prepared and unprepared, and slices of drivers that are gone removed.
func (c claimDomain) follow(n node, e claimEnds) []part.Part {
	registered := func() bool { return e.own() != nil }
	return append(n.publishCPUs(registered),
		part.Of("resource claims", func(ctx context.Context) error { return c.Run(ctx, e.pods) }),
		part.Of("resource slices", func(ctx context.Context) error { return c.slices.Run(ctx, registered) }),
		part.Each("drivers that are gone", c.drivers.gone, c.slices.Gone),
		part.Each("settled claims", c.settled, e.again))
}

// admission returns what admission knows of claims; nil: no pod has any.
func (c claimDomain) admission() admission.Claims {
	if c.Manager == nil {
		return nil
	}
	return claims.Admission{Manager: c.Manager}
}

// holds reports whether the pod holds claims.
func (c claimDomain) holds(pod types.UID) bool { return c.Manager != nil && c.Held(pod) != nil }
