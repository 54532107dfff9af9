package dra

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/gpu"
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

func (d *Driver) answer(r record) (out kubeletplugin.PrepareResult) {
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

// prepareLocked returns the claim's record, which is on disk then. What is prepared already stays
// as it is.
func (d *Driver) prepareLocked(all map[types.UID]record, claim *resourcev1.ResourceClaim) (
	r record, err error) {
	now := d.inventory()
	wanted, err := wantedBy(claim, now.Driver)
	if err != nil {
		return r, err
	}
	if known, has := all[claim.UID]; has {
		if now.holds(known, wanted) {
			return known, nil
		}
		if err := d.dropLocked(all, known); err != nil { // it was allocated anew
			return r, err
		}
	}
	if _, err := now.state.CommonEdits(d.cfg.Settings); err != nil {
		return r, err
	}
	r = record{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	var edits []specs.ContainerEdits
	var made []held
	defer func() {
		if err != nil {
			err = errors.Join(err, d.removeLocked(made))
		}
	}()
	for _, w := range wanted {
		target, err := now.usable(all, w, claim.UID)
		if err != nil {
			return r, err
		}
		h, err := d.obtainLocked(all, w, target)
		if err != nil {
			return r, fmt.Errorf("device %s: %w", w.Device, err)
		}
		if h.Parent != "" && !anyHas(all, h.UUID) {
			made = append(made, h)
		}
		r.Devices = append(r.Devices, h)
		edits = append(edits, now.state.Edits(d.cfg.Settings, target.gpu.Minor, h.Nodes))
	}
	r.Written = time.Now()
	if err := d.store.write(r, edits); err != nil {
		return r, err
	}
	d.cfg.Log("claim %s/%s: prepared %s", r.Namespace, r.Name, r.names())
	return r, nil
}

// wantedBy returns the devices of this driver that are allocated to the claim.
func wantedBy(claim *resourcev1.ResourceClaim, driver string) (out []wish, err error) {
	allocation := claim.Status.Allocation
	if allocation == nil {
		return nil, errors.New("the claim is not allocated")
	}
	if err := checkParameters(driver, allocation.Devices.Config); err != nil {
		return nil, err
	}
	for _, result := range allocation.Devices.Results {
		if result.Driver != driver {
			continue
		}
		w := wish{Request: result.Request, Pool: result.Pool, Device: result.Device,
			Admin: result.AdminAccess != nil && *result.AdminAccess}
		if result.ShareID != nil {
			w.Share = string(*result.ShareID)
		}
		out = append(out, w)
	}
	return out, nil
}

// holds reports whether the record has just what is wanted, and its devices are still the same.
func (i inventory) holds(r record, wanted []wish) bool {
	return slices.EqualFunc(r.Devices, wanted, func(has held, wants wish) bool {
		return has.wish == wants && i.stands(r, has)
	})
}

// stands reports whether nothing tells that the record's device has gone, or is another one now. A
// snapshot that began before the claim was prepared need not have its MIG device.
func (i inventory) stands(r record, h held) bool {
	d, there := i.find(h.Device)
	return !there || d.uuid() == h.UUID || d.place != nil && !i.state.Began.After(r.Written)
}

// usable returns the device that is wanted, unless it is not there, fails, or is another claim's.
func (i inventory) usable(all map[types.UID]record, w wish, uid types.UID) (device, error) {
	d, there := i.find(w.Device)
	switch {
	case w.Pool != i.Node:
		return d, fmt.Errorf("device %s of pool %q is allocated, and the pool of this node is %q",
			w.Device, w.Pool, i.Node)
	case !there && i.state.Driver == "":
		return d, fmt.Errorf("device %s: the NVIDIA driver has not answered yet", w.Device)
	case !there:
		return d, fmt.Errorf("device %s is not there any more", w.Device)
	case w.Admin:
		return d, nil
	case len(d.troubles) > 0:
		return d, fmt.Errorf("device %s is unhealthy: %s", w.Device, gpu.Describe(d.troubles))
	}
	for _, other := range holders(all, w.Device, uid) {
		for _, o := range other.Devices {
			if o.Device == w.Device && !o.Admin && (o.Share == "" || w.Share == "") {
				return d, fmt.Errorf("device %s is prepared for the claim %s/%s (%s), which has "+
					"not been unprepared", w.Device, other.Namespace, other.Name, other.UID)
			}
		}
	}
	return d, nil
}

// obtainLocked returns the device with its UUID. It makes the MIG device if no claim has it yet.
func (d *Driver) obtainLocked(all map[types.UID]record, w wish, target device) (held, error) {
	h := held{wish: w, UUID: target.uuid()}
	if target.place == nil {
		if target.instance != nil {
			h.Nodes = target.instance.Nodes
		}
		return h, nil
	}
	h.Parent = target.gpu.UUID
	for _, other := range holders(all, w.Device, "") { // it is shared
		for _, o := range other.Devices {
			if o.Device == w.Device && d.inventory().stands(other, o) {
				h.UUID, h.Nodes = o.UUID, o.Nodes
				return h, nil
			}
		}
	}
	if err := d.clearLocked(all, target); err != nil {
		return h, err
	}
	instance, err := d.divider.Divide(target.gpu.UUID, *target.place)
	h.UUID, h.Nodes = instance.UUID, instance.Nodes
	return h, err
}

// clearLocked removes the MIG devices that no claim has from the target's place.
func (d *Driver) clearLocked(all map[types.UID]record, target device) error {
	for _, instance := range target.gpu.Instances {
		if anyHas(all, instance.UUID) || !overlap(target.gpu, instance, *target.place) {
			continue
		}
		d.cfg.Log("MIG device %s (%s) of GPU %d is no claim's, and is removed", instance.UUID,
			instance.Profile, target.gpu.Index)
		if err := d.divider.Remove(target.gpu.UUID, instance.UUID); err != nil {
			return fmt.Errorf("remove MIG device %s, which no claim has: %w", instance.UUID, err)
		}
	}
	return nil
}

// overlap reports whether a MIG device may have slices of the place.
func overlap(g gpu.GPU, instance gpu.Instance, place gpu.Partition) bool {
	at := slices.IndexFunc(g.Traits.Partitions, func(p gpu.Partition) bool {
		return p.Profile == instance.Profile && p.Start == instance.Start
	})
	if at < 0 {
		return true // unknown
	}
	has := g.Traits.Partitions[at]
	return has.Start < place.Start+place.Size && place.Start < has.Start+has.Size
}

func anyHas(all map[types.UID]record, uuid string) bool {
	for _, r := range all {
		if slices.ContainsFunc(r.Devices, func(h held) bool { return h.UUID == uuid }) {
			return true
		}
	}
	return false
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

// release forgets a claim, and removes what was made for it. It is no error if there is none.
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

// dropLocked removes the record from disk and from all, and before that the MIG devices of it that
// no other claim has.
func (d *Driver) dropLocked(all map[types.UID]record, r record) error {
	delete(all, r.UID)
	var alone []held
	for _, h := range r.Devices {
		if h.Parent != "" && !anyHas(all, h.UUID) {
			alone = append(alone, h)
		}
	}
	if err := d.removeLocked(alone); err != nil {
		return err
	}
	if err := d.store.remove(r.UID); err != nil {
		return fmt.Errorf("remove the record of claim %s/%s: %w", r.Namespace, r.Name, err)
	}
	return nil
}

// removeLocked removes MIG devices. With a driver that is not loaded, or without the GPU, there are
// none.
func (d *Driver) removeLocked(all []held) error {
	var errs []error
	state := d.inventory().state
	for _, h := range all {
		known := state.Driver == "" || slices.ContainsFunc(state.GPUs,
			func(g gpu.GPU) bool { return g.UUID == h.Parent && g.MIG && !g.Reading.Lost })
		if !known || d.divider == nil {
			continue
		}
		err := d.divider.Remove(h.Parent, h.UUID)
		if err != nil && !errors.Is(err, gpu.ErrNoDriver) {
			errs = append(errs, fmt.Errorf("remove MIG device %s: %w", h.UUID, err))
		}
	}
	return errors.Join(errs...)
}
