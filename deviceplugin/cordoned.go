package deviceplugin

import (
	"context"
	"slices"

	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/topology/await"
)

// Cordon has a device not given to containers that do not have it yet, also one that no plugin
// lists now. It is durable, and in the inventory, when Cordon returns without an error. New: it was not
// cordoned before, and is now; beside an error it is durable and may not be in the inventory yet.
func (p *Plugins) Cordon(ctx context.Context, c cordon.Cordon) (isNew bool, err error) {
	if isNew, err = p.cfg.Cordons.Put(c); err != nil {
		return false, err
	}
	return isNew, p.recordon(ctx, c.Resource)
}

// Cordons is all cordons, by resource and id, those of devices that no plugin lists among them.
func (p *Plugins) Cordons() []cordon.Cordon { return p.cfg.Cordons.List() }

// Uncordon ends what Cordon began. Was: the device was cordoned. Readers may see it so still if it was
// not, when the one who asked before went away in between.
func (p *Plugins) Uncordon(ctx context.Context, resource, id string) (was bool, err error) {
	if was, err = p.cfg.Cordons.Remove(resource, id); err != nil {
		return false, err
	}
	return was, p.recordon(ctx, resource)
}

// recordon waits until readers see which devices of a resource are cordoned.
func (p *Plugins) recordon(ctx context.Context, resource string) error {
	seen := make(chan struct{})
	if !await.Send(ctx, p.events, event{kind: resourceRecordoned, resource: resource, seen: seen}) {
		return ctx.Err()
	}
	<-seen // the loop waits for nobody
	return nil
}

// marked is the devices of a list with those that are cordoned marked, and how many of them all are
// on offer.
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

// Cordoned counts the devices that are cordoned.
func (r Resource) Cordoned() (n int) {
	for _, d := range r.Devices {
		n += count(d.Cordoned)
	}
	return n
}
