package deviceplugin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
)

// ReleasedWish is whether a plugin wants to be told which devices were released.
type ReleasedWish int

// The wishes. What a plugin that has sent no list since the agent started wants is not known.
const (
	ReleasedUnwanted ReleasedWish = iota
	ReleasedWanted
	ReleasedUnknown
)

// WantsReleased is the wish of a resource's plugin.
func (i Inventory) WantsReleased(resource string) ReleasedWish {
	if r, known := i.Resources[resource]; known {
		return r.Options.Released
	}
	return ReleasedUnknown
}

// askReleased asks whether the plugin serves lifecyclev1.Lifecycle. One that gives another answer
// than the protocol has does not.
func (l *link) askReleased(ctx context.Context, deadline time.Duration) ReleasedWish {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	_, err := lifecyclev1.NewLifecycleClient(l.conn).Released(ctx, &lifecyclev1.ReleasedRequest{})
	switch {
	case err == nil:
		return ReleasedWanted
	case status.Code(err) != codes.Unimplemented && context.Cause(l.life) == nil:
		klog.FromContext(ctx).Info("Device plugin is not told of released devices: it serves "+
			"numalet.deviceplugin.v1.Lifecycle only if it answers a request without devices "+
			"with success, and else answers Unimplemented", "err", err)
	}
	return ReleasedUnwanted
}

// Released tells the plugin that nobody has these devices any more, in whatever order, and who had
// them. An error says that it did not answer, or not with success.
func (p *Plugins) Released(ctx context.Context, resource string, ids []string,
	by holder.Holder) (err error) {
	c, err := p.call(ctx, rpcReleased, resource, p.cfg.Deadlines.Released)
	if err != nil {
		return err
	}
	defer func() { c.done(err) }()
	_, err = lifecyclev1.NewLifecycleClient(c.conn).Released(c.ctx, &lifecyclev1.ReleasedRequest{
		DeviceIds: sortedIDs(ids),
		Pod: &lifecyclev1.Pod{
			Namespace: valid(by.Namespace), Name: valid(by.Pod), Uid: valid(by.UID),
		},
	}, c.options()...)
	if err = c.unanswered(ctx, err); err != nil {
		return fmt.Errorf("device plugin Released rpc failed with err: %w", err)
	}
	return nil
}

// valid is a text that a message can have: a UID in a manifest may be any text.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
