package dradriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
)

// PrepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) PrepareResourceClaims(_ context.Context, claims []*resourcev1.ResourceClaim) (
	map[types.UID]kubeletplugin.PrepareResult, error) {
	d.work.Lock()
	defer d.work.Unlock()
	all, _, err := d.store.load()
	if err != nil {
		return nil, err
	}
	out := map[types.UID]kubeletplugin.PrepareResult{}
	for _, claim := range claims {
		r, err := d.prepareLocked(all, claim)
		if err != nil {
			d.cfg.Log("claim %s/%s: not prepared: %v", claim.Namespace, claim.Name, err)
			out[claim.UID] = kubeletplugin.PrepareResult{Err: err}
			continue
		}
		all[r.UID] = r
		out[claim.UID] = d.answer(r)
	}
	return out, nil
}

func (d *Driver) answer(r Record) (out kubeletplugin.PrepareResult) {
	for n, h := range r.Devices {
		one := kubeletplugin.Device{Requests: []string{h.Request}, PoolName: h.Pool,
			DeviceName: h.Device, CDIDeviceIDs: d.store.ids(r.UID, n)}
		if h.Share != "" {
			one.ShareID = new(types.UID(h.Share))
		}
		out.Devices = append(out.Devices, one)
	}
	return out
}

// prepareLocked returns the claim's record, which is on disk then. Devices that are prepared already
// stay as they are.
func (d *Driver) prepareLocked(all Records, claim *resourcev1.ResourceClaim) (r Record, err error) {
	wanted, err := d.wantedBy(claim)
	if err != nil {
		return r, err
	}
	now, _ := d.current()
	if known, has := all[claim.UID]; has {
		if now.holds(known, wanted) {
			return known, nil
		}
		if err := d.dropLocked(all, known); err != nil { // it was allocated anew
			return r, err
		}
	}
	r = Record{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	defer func() {
		if err != nil && len(r.Devices) > 0 {
			err = errors.Join(err, now.Drop(all.alone(r.Devices)))
		}
	}()
	for _, w := range wanted {
		if err := d.usable(now.list, all, w); err != nil {
			return r, err
		}
		h := Held{Wish: w}
		if err := now.Obtain(all, r, &h); err != nil {
			return r, fmt.Errorf("device %s: %w", w.Device, err)
		}
		r.Devices = append(r.Devices, h)
	}
	r.Written = time.Now()
	edits, err := now.Edits(r)
	if err == nil {
		err = d.store.write(r, edits)
	}
	if err != nil {
		return r, err
	}
	d.cfg.Log("claim %s/%s: prepared %s", r.Namespace, r.Name, r.names())
	return r, nil
}

// wantedBy returns the devices of this driver that are allocated to the claim.
func (d *Driver) wantedBy(claim *resourcev1.ResourceClaim) (out []Wish, err error) {
	allocation := claim.Status.Allocation
	if allocation == nil {
		return nil, errors.New("the claim is not allocated")
	}
	for _, one := range allocation.Devices.Config {
		if one.Opaque == nil || one.Opaque.Driver != d.cfg.Driver {
			continue
		}
		if err := d.cfg.Accept(one.Opaque.Parameters.Raw); err != nil {
			return nil, fmt.Errorf("opaque parameters for %s, from the %s: %w", d.cfg.Driver,
				one.Source, err)
		}
	}
	for _, result := range allocation.Devices.Results {
		if result.Driver != d.cfg.Driver {
			continue
		}
		w := Wish{Request: result.Request, Pool: result.Pool, Device: result.Device,
			Admin: result.AdminAccess != nil && *result.AdminAccess}
		if result.ShareID != nil {
			w.Share = string(*result.ShareID)
		}
		out = append(out, w)
	}
	return out, nil
}

// holds reports whether the record has just what is wanted, and its devices are still the same.
func (m moment) holds(r Record, wanted []Wish) bool {
	return slices.EqualFunc(r.Devices, wanted, func(has Held, wants Wish) bool {
		return has.Wish == wants && m.Stands(r, has)
	})
}

// usable says why a device that is wanted is not to be had: it is not there, fails, or is another
// claim's.
func (d *Driver) usable(list List, all Records, w Wish) error {
	found, there := list.find(w.Device)
	switch {
	case w.Pool != d.cfg.Node:
		return fmt.Errorf("device %s of pool %q is allocated, and the pool of this node is %q",
			w.Device, w.Pool, d.cfg.Node)
	case !there && list.Unknown != "":
		return fmt.Errorf("device %s: %s", w.Device, list.Unknown)
	case !there:
		return fmt.Errorf("device %s is not there any more", w.Device)
	case w.Admin:
		return nil
	case found.Trouble != "":
		return fmt.Errorf("device %s is unhealthy: %s", w.Device, found.Trouble)
	}
	for other, o := range all.Held() {
		if o.Device == w.Device && !o.Admin && (o.Share == "" || w.Share == "") {
			return fmt.Errorf("device %s is prepared for the claim %s/%s (%s), which has "+
				"not been unprepared", w.Device, other.Namespace, other.Name, other.UID)
		}
	}
	return nil
}

// UnprepareResourceClaims implements kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(_ context.Context,
	claims []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	out := map[types.UID]error{}
	for _, claim := range claims {
		out[claim.UID] = d.release(claim.UID)
	}
	return out, nil
}

// release forgets a claim, and takes back its devices. It is no error if there is none.
func (d *Driver) release(uid types.UID) error {
	d.work.Lock()
	defer d.work.Unlock()
	all, _, err := d.store.load()
	if err != nil {
		return err
	}
	r, has := all[uid]
	if !has {
		return nil
	}
	if err := d.dropLocked(all, r); err != nil {
		return err
	}
	d.cfg.Log("claim %s/%s: unprepared", r.Namespace, r.Name)
	return nil
}

// dropLocked removes the record from disk and from all, after the devices that no other claim has.
func (d *Driver) dropLocked(all Records, r Record) error {
	delete(all, r.UID)
	now, _ := d.current()
	if alone := all.alone(r.Devices); len(alone) > 0 {
		if err := now.Drop(alone); err != nil {
			return err
		}
	}
	if err := d.store.remove(r.UID); err != nil {
		return fmt.Errorf("remove the record of claim %s/%s: %w", r.Namespace, r.Name, err)
	}
	return nil
}

// Renew writes anew what containers get with the devices of claims, where that has changed.
func (d *Driver) Renew() error {
	d.work.Lock()
	defer d.work.Unlock()
	all, _, err := d.store.load()
	now, _ := d.current()
	for _, r := range all {
		edits, bad := now.Edits(r)
		if bad == nil && !d.store.gives(r, edits) {
			bad = d.store.write(r, edits)
		}
		err = errors.Join(err, bad)
	}
	return err
}

// Records returns the claims that are prepared.
func (d *Driver) Records() (Records, error) {
	all, _, err := d.store.load()
	return all, err
}
