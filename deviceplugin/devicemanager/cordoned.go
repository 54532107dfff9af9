package devicemanager

import (
	"context"
	"slices"

	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/internal/await"
)

// Cordon withholds a device, also one that no plugin lists now, from containers that do not hold it
// yet. When it returns without an error, the cordon is durable and in the inventory. If isNew, the
// device was not cordoned before; with an error, the cordon is durable but may not be in the
// inventory yet.
func (p *Plugins) Cordon(ctx context.Context, c cordon.Cordon) (isNew bool, err error) {
	if isNew, err = p.cfg.Cordons.Put(c); err != nil {
		return false, err
	}
	return isNew, p.recordon(ctx, c.Resource)
}

// Cordons returns all cordons, by resource and id, also of devices that no plugin lists.
func (p *Plugins) Cordons() []cordon.Cordon { return p.cfg.Cordons.List() }

// Uncordon ends a cordon; was reports whether there was one. It updates readers in any case: an
// earlier call may have been canceled after it removed the cordon.
func (p *Plugins) Uncordon(ctx context.Context, resource, id string) (was bool, err error) {
	if was, err = p.cfg.Cordons.Remove(resource, id); err != nil {
		return false, err
	}
	return was, p.recordon(ctx, resource)
}

// recordon returns once readers see which devices of a resource are cordoned.
func (p *Plugins) recordon(ctx context.Context, resource string) error {
	seen := make(chan struct{})
	if !await.Send(ctx, p.events, event{kind: resourceRecordoned, resource: resource, seen: seen}) {
		return ctx.Err()
	}
	<-seen // the loop never blocks
	return nil
}

// marked returns the devices of a list with the cordoned ones marked, and the number of those on
// offer.
func marked(l list, cordons map[string]cordon.Cordon) (devices []*Device, offered int) {
	devices, offered = l.devices, l.healthy
	if len(cordons) == 0 {
		return devices, offered
	}
	devices = slices.Clone(devices)
	for id := range cordons {
		at, found := lookUp(devices, id)
		if !found {
			continue
		}
		d := *devices[at]
		d.Cordoned = true
		devices[at] = &d
		offered -= count(d.Healthy)
	}
	return devices, offered
}

// Cordoned returns the number of cordoned devices.
func (r Resource) Cordoned() (n int) {
	for _, d := range r.Devices {
		n += count(d.Cordoned)
	}
	return n
}
