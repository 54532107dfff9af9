package dra

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/connectivity"
	"k8s.io/klog/v2"
)

// instance is one registration of a plugin.
type instance struct {
	introduction
	drivers *Drivers
	number  uint64 // grows with each registration
	stop    context.CancelFunc

	// Drivers' lock guards the rest.
	link      *link
	connected bool
}

// Periods of the replacement of a connection.
const (
	renewPatience = time.Second      // a local server answers at once, or is not there
	renewAgain    = 10 * time.Second // after an attempt that failed
)

// run keeps the connection, and follows the health stream, until the instance leaves or Run ends.
func (in *instance) run(ctx context.Context) {
	d := in.drivers
	log := klog.FromContext(ctx).WithValues("driver", in.driver, "endpoint", in.endpoint)
	ctx = klog.NewContext(ctx, log)
	defer in.leave()
	var streams sync.WaitGroup
	defer streams.Wait()
	if in.health != "" {
		streams.Go(func() { in.followHealth(ctx) })
	}
	l := in.current() // which only this goroutine replaces
	for ctx.Err() == nil {
		state := l.GetState()
		in.noteState(ctx, state == connectivity.Ready)
		if state == connectivity.Idle {
			l.Connect()
		}
		if !l.changes(ctx, state, d.cfg.Deadlines.Silence) && ctx.Err() == nil {
			l = in.renew(ctx, l)
		}
	}
}

func (in *instance) current() *link {
	in.drivers.mu.Lock()
	defer in.drivers.mu.Unlock()
	return in.link
}

// renew replaces a connection by a new one, which has to be there at once: until then calls go on
// over the old one.
func (in *instance) renew(ctx context.Context, old *link) *link {
	d := in.drivers
	fresh, err := d.newLink(in.introduction)
	if err == nil {
		patience, cancel := context.WithTimeout(ctx, renewPatience)
		defer cancel()
		if fresh.Ready(patience) && in.replace(fresh) {
			old.HangUp()
			klog.FromContext(ctx).V(4).Info("Connection to DRA driver was replaced")
			return fresh
		}
		fresh.HangUp()
	}
	old.wait(renewAgain)
	return old
}
