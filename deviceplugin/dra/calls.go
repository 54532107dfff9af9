package dra

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// call makes one call to a driver. do returns what was wrong with an answer, which only counts as a
// failure, or an error.
func (d *Drivers) call(ctx context.Context, driver, rpc string,
	do func(context.Context, drav1.DRAPluginClient) (flawed, err error)) error {
	in, l := d.enter(driver)
	if l == nil {
		return notRegistered{driver}
	}
	defer l.leave()
	log := klog.FromContext(ctx).WithValues("driver", driver, "endpoint", in.endpoint, "rpc", rpc)
	log.V(4).Info("DRA driver is called")
	caller := ctx
	ctx, cancel := context.WithTimeout(klog.NewContext(ctx, log), d.cfg.Deadlines.Call)
	defer cancel()
	began := time.Now()
	flawed, err := do(ctx, l.client)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && caller.Err() == nil && err != nil {
		l.doubt()
	} else {
		l.trust(d.cfg.Deadlines.Silence)
	}
	log.V(4).Info("DRA driver was called", "took", time.Since(began), "err", errors.Join(err, flawed))
	d.counted(driver, rpc, time.Since(began), errors.Join(err, flawed))
	return err
}

// enter begins a call to a driver; the caller ends it with leave. l is nil if the driver has no
// plugin.
func (d *Drivers) enter(driver string) (in *instance, l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := d.drivers[driver]
	if of == nil {
		return nil, nil
	}
	if in = of.newest(); in == nil || !in.link.callers.Enter() {
		return nil, nil
	}
	return in, in.link
}
