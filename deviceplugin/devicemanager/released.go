package devicemanager

import (
	"context"
	"fmt"
	"strings"

	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
)

// ReleasedWish says whether a plugin wants to hear which devices were released.
type ReleasedWish int

// The wishes. Unknown: the plugin has sent no list since the agent started.
const (
	ReleasedUnwanted ReleasedWish = iota
	ReleasedWanted
	ReleasedUnknown
)

// WantsReleased returns the wish of a resource's plugin.
func (i Inventory) WantsReleased(resource string) ReleasedWish {
	if r, known := i.Resources[resource]; known {
		return r.Options.Released
	}
	return ReleasedUnknown
}

// Released tells the plugin that no pod holds these devices any more, and which pod held them. The
// order of ids does not matter. An error says that the plugin did not answer with success.
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

// valid makes a text fit for a message: a UID in a manifest may be any text.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
