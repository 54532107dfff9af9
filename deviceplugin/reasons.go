package deviceplugin

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
	"github.com/numalet/numalet/topology/oneline"
)

// A plugin may take so long to answer, and is asked for so many devices of a list.
const (
	reasonsDeadline = time.Second
	mostReasons     = 256
)

// Reasons say, for people, why devices are unhealthy, by id.
type Reasons struct {
	ByID map[string]string
	// Awaited: the plugin is being asked.
	Awaited bool
}

// Reason is why a plugin says that a device is unhealthy, for people; empty when it does not say.
func (i Inventory) Reason(resource, id string) string { return i.Resources[resource].Reasons.ByID[id] }

// askReasons asks whether the plugin serves lifecyclev1.Lifecycle's Reasons.
func (l *link) askReasons(ctx context.Context, deadline time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	_, err := lifecyclev1.NewLifecycleClient(l.conn).Reasons(ctx, &lifecyclev1.ReasonsRequest{})
	if err != nil && status.Code(err) != codes.Unimplemented && context.Cause(l.life) == nil {
		klog.FromContext(ctx).Info("Device plugin is not asked for the reasons of unhealthy devices: "+
			"it answers a request without devices neither with success nor with Unimplemented",
			"err", err)
	}
	return err == nil
}

// reasons asks why devices are unhealthy; nil when the plugin does not say.
func (l *link) reasons(ctx context.Context, s linkSettings, ids []string) map[string]string {
	asking, cancel := context.WithTimeout(ctx, reasonsDeadline)
	defer cancel()
	began := time.Now()
	resp, err := lifecyclev1.NewLifecycleClient(l.conn).Reasons(asking,
		&lifecyclev1.ReasonsRequest{DeviceIds: ids})
	if ctx.Err() != nil {
		return nil
	}
	l.called(s.metrics, rpcReasons, time.Since(began), err)
	if err != nil {
		klog.FromContext(ctx).Info("Device plugin does not say why devices are unhealthy",
			"devices", Few(ids), "err", err)
		return nil
	}
	out := map[string]string{}
	for _, id := range ids {
		if why := oneline.Of(resp.GetReasons()[id]); why != "" {
			out[id] = why
		}
	}
	return out
}
