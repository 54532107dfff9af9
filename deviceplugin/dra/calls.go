package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Names of calls: the API's.
const (
	rpcPrepare   = "NodePrepareResources"
	rpcUnprepare = "NodeUnprepareResources"
)

// Prepare has a driver prepare claims in one call, and returns its answer for each of them. err
// says why there are none: an error that is ErrNotRegistered, or one of the call, which may have
// reached the driver.
func (d *Drivers) Prepare(ctx context.Context, driver string, claims []Claim) (
	answers map[types.UID]Answer, err error) {
	err = d.call(ctx, driver, rpcPrepare, func(ctx context.Context, client drav1.DRAPluginClient) (
		flawed, err error) {
		resp, err := client.NodePrepareResources(ctx,
			&drav1.NodePrepareResourcesRequest{Claims: wire(claims)})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rpcPrepare, err)
		}
		if answers, err = prepared(driver, claims, resp); err != nil {
			return nil, err
		}
		for _, c := range claims {
			flawed = errors.Join(flawed, answers[c.UID].Err)
		}
		return flawed, nil
	})
	return answers, err
}

// Unprepare has a driver unprepare claims in one call. errs has an entry for each of them, nil if
// the claim is unprepared; err is as with Prepare.
func (d *Drivers) Unprepare(ctx context.Context, driver string, claims []Claim) (
	errs map[types.UID]error, err error) {
	err = d.call(ctx, driver, rpcUnprepare, func(ctx context.Context,
		client drav1.DRAPluginClient) (flawed, err error) {
		resp, err := client.NodeUnprepareResources(ctx,
			&drav1.NodeUnprepareResourcesRequest{Claims: wire(claims)})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rpcUnprepare, err)
		}
		if errs, err = outcomes(rpcUnprepare, claims, resp.GetClaims()); err != nil {
			return nil, err
		}
		for _, c := range claims {
			flawed = errors.Join(flawed, errs[c.UID])
		}
		return flawed, nil
	})
	return errs, err
}

func wire(claims []Claim) (out []*drav1.Claim) {
	for _, c := range claims {
		out = append(out, &drav1.Claim{Namespace: c.Namespace, Name: c.Name, Uid: string(c.UID)})
	}
	return out
}

// rpc makes a call. It returns what was wrong with an answer, which only counts as a failure, or an
// error.
type rpc func(context.Context, drav1.DRAPluginClient) (flawed, err error)

// errLate is the cause of a call's end when its own time is over.
var errLate = errors.New("the driver did not answer in time")

// maxTries bounds the plugins of a driver that one call is made to.
const maxTries = 3

// call makes one call to a driver. If the plugin cannot be reached, or breaks off, and another one
// of the driver is connected, it is called as well: a plugin that ends may have calls under way
// that never reached it, and plugins have to take each call twice.
func (d *Drivers) call(ctx context.Context, driver, name string, do rpc) (err error) {
	within, cancel := context.WithTimeoutCause(ctx, d.cfg.Deadlines.Call, errLate)
	defer cancel()
	var last *instance
	for range maxTries {
		in, l := d.enter(driver, last)
		if l == nil {
			return cmp.Or[error](err, notRegistered{driver})
		}
		err = d.callOn(within, in, l, name, do)
		if status.Code(err) != codes.Unavailable {
			return err
		}
		last = in
	}
	return err
}

// callOn makes a call over a connection of the plugin.
func (d *Drivers) callOn(ctx context.Context, in *instance, l *link, name string, do rpc) error {
	defer l.Leave()
	log := klog.FromContext(ctx).WithValues("driver", in.driver, "endpoint", in.endpoint, "rpc", name)
	log.V(4).Info("DRA driver is called")
	began := time.Now()
	flawed, err := do(klog.NewContext(ctx, log), l.client)
	took, outcome := time.Since(began), errors.Join(err, flawed)
	if err != nil && errors.Is(context.Cause(ctx), errLate) {
		l.doubt()
	} else {
		l.answered(d.cfg.Deadlines.Silence)
	}
	log.V(4).Info("DRA driver was called", "took", took, "err", outcome)
	d.counted(in.driver, name, took, outcome)
	return err
}

// enter begins a call to a driver; the caller ends it with Leave. l is nil if the driver has no
// plugin, or after the plugin last failed no other one that is connected.
func (d *Drivers) enter(driver string, last *instance) (in *instance, l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.drivers[driver]
	if of == nil {
		return nil, nil
	}
	in = of.newest()
	if in == nil || last != nil && (in == last || !in.connected) || !in.link.Enter() {
		return nil, nil
	}
	return in, in.link
}
