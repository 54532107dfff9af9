// Package firewall maintains the iptables chains that a kubelet keeps on its host for others.
// KUBE-IPTABLES-HINT shows which kind of iptables is in use. KUBE-FIREWALL drops packets to
// 127.0.0.0/8 from elsewhere, which kube-proxy's route_localnet would admit
// (makeIPTablesUtilChains; section 4.2.6 of the CIS benchmark).
package firewall

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/coreos/go-iptables/iptables"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
)

const (
	// hint is the chain that shows others which kind of iptables the host uses.
	hint = "KUBE-IPTABLES-HINT"
	// guard is the chain with the rule against packets from elsewhere.
	guard = "KUBE-FIREWALL"
	// canary is a chain whose absence shows that its table was flushed, and the other chains with it.
	canary = "KUBE-KUBELET-CANARY"
	// lookEvery is the time between two checks of canaries. lockWait is how long iptables waits for
	// other writers, in seconds.
	lookEvery = time.Minute
	lockWait  = 5
)

var canaryTables = []string{"mangle", "nat", "filter"}

// localnet matches packets to a loopback address that do not belong there. kube-proxy has the same
// rule.
var localnet = []string{
	"-m", "comment", "--comment", "block incoming localnet connections",
	"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
	"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
}

// Firewall maintains the chains of both address families.
type Firewall struct {
	every time.Duration
	wrong complaint.Complaint[string]
}

// New returns a Firewall; Run makes the chains.
func New() *Firewall { return &Firewall{every: lookEvery} }

// family is iptables for one address family.
type family struct {
	name   string
	tables *iptables.IPTables
}

// find looks for iptables. A host without it does not need the chains.
func find(ctx context.Context) (all []family) {
	for _, of := range []struct {
		name     string
		protocol iptables.Protocol
	}{{"IPv4", iptables.ProtocolIPv4}, {"IPv6", iptables.ProtocolIPv6}} {
		tables, err := iptables.New(iptables.IPFamily(of.protocol), iptables.Timeout(lockWait))
		if err != nil {
			klog.FromContext(ctx).Info("This host has no iptables; its chains are not maintained "+
				"(makeIPTablesUtilChains)", "family", of.name, "why", err.Error())
			continue
		}
		all = append(all, family{of.name, tables})
	}
	return all
}

// Run makes the chains, and makes them again after others removed them, until ctx ends.
func (f *Firewall) Run(ctx context.Context) error {
	families := find(ctx)
	if len(families) == 0 {
		return nil
	}
	f.keep(ctx, families, family.make)
	tick := time.Tick(f.every)
	for await.On(ctx, tick) {
		f.keep(ctx, families, family.mend)
	}
	return nil
}

// keep calls do for the families, and logs a failure once.
func (f *Firewall) keep(ctx context.Context, families []family, do func(family) error) {
	var err error
	for _, of := range families {
		if failed := do(of); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", of.name, failed))
		}
	}
	if f.wrong.Changes(complaint.Of(err)) {
		klog.FromContext(ctx).Info("The host's iptables chains (makeIPTablesUtilChains)", "missing",
			complaint.Of(err))
	}
}

// mend makes the chains if a canary is missing, or if they could not be made before.
func (f family) mend() error {
	for _, table := range canaryTables {
		there, err := f.tables.ChainExists(table, canary)
		if err != nil {
			return err
		}
		if !there {
			return f.make()
		}
	}
	return nil
}

// make makes what is missing, the canaries last.
func (f family) make() error {
	if err := f.chain("mangle", hint); err != nil {
		return err
	}
	if f.tables.Proto() == iptables.ProtocolIPv4 { // IPv6 does not have this risk
		if err := f.guarded(); err != nil {
			return err
		}
	}
	for _, table := range canaryTables {
		if err := f.chain(table, canary); err != nil {
			return err
		}
	}
	return nil
}

func (f family) guarded() error {
	err := f.chain("filter", guard)
	for _, from := range []string{"OUTPUT", "INPUT"} {
		if err == nil {
			err = f.tables.InsertUnique("filter", from, 1, "-j", guard)
		}
	}
	if err == nil {
		err = f.tables.AppendUnique("filter", guard, localnet...)
	}
	return err
}

func (f family) chain(table, name string) error {
	there, err := f.tables.ChainExists(table, name)
	if err != nil || there {
		return err
	}
	return f.tables.NewChain(table, name)
}
