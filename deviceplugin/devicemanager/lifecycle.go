package devicemanager

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
)

// askLifecycle finds out which calls of lifecyclev1.Lifecycle the plugin serves. The list of devices
// waits for the answers, so it asks for all of them at once. deadline is that of Released, which
// keeps devices from being given out too early; the others have that of the calls themselves.
func (c *connection) askLifecycle(ctx context.Context, deadline time.Duration, o *Options) {
	const neither = ": it answers a request without devices neither with success nor with Unimplemented"
	var asking sync.WaitGroup
	asking.Go(func() {
		if serves(ctx, c, deadline, lifecyclev1.LifecycleClient.Released, "Device plugin is not told "+
			"of released devices: it serves numalet.deviceplugin.v1.Lifecycle only if it answers a "+
			"request without devices with success, and else answers Unimplemented") {
			o.Released = ReleasedWanted
		}
	})
	asking.Go(func() {
		o.Reasons = serves(ctx, c, reasonsDeadline, lifecyclev1.LifecycleClient.Reasons,
			"Device plugin is not asked for the reasons of unhealthy devices"+neither)
	})
	asking.Go(func() {
		o.Places = serves(ctx, c, placesDeadline, lifecyclev1.LifecycleClient.Places,
			"Device plugin is not asked where devices are"+neither)
	})
	asking.Wait()
}

// serves reports whether the plugin answers a request without devices with success. A plugin whose
// answer breaks the protocol does not serve the call; refusal says so in the log.
func serves[Q, A any](ctx context.Context, c *connection, deadline time.Duration,
	call func(lifecyclev1.LifecycleClient, context.Context, *Q, ...grpc.CallOption) (*A, error),
	refusal string) bool {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	_, err := call(lifecyclev1.NewLifecycleClient(c.conn), ctx, new(Q))
	if err != nil && status.Code(err) != codes.Unimplemented && context.Cause(c.life) == nil {
		klog.FromContext(ctx).Info(refusal, "err", err)
	}
	return err == nil
}
