package dra

import (
	"errors"
	"fmt"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/dradriver"
	"github.com/numalet/numalet/deviceplugin/gpu"
)

// Stands implements dradriver.Devices. A snapshot that began before the claim was prepared need not
// have its MIG device.
func (i inventory) Stands(r dradriver.Record, h dradriver.Held) bool {
	d, there := i.find(h.Device)
	return !there || d.uuid() == h.ID || d.place != nil && !i.state.Began.After(r.Written)
}

// Obtain implements dradriver.Devices. It makes the MIG device if no claim has it yet.
func (i inventory) Obtain(all dradriver.Records, _ dradriver.Record, h *dradriver.Held) error {
	if _, err := i.state.CommonEdits(i.settings); err != nil {
		return err
	}
	target, there := i.find(h.Device)
	switch {
	case !there:
		return errors.New("it is not there any more")
	case target.place != nil:
		return i.divide(all, h, target)
	case target.instance != nil:
		h.Nodes = target.instance.Nodes
	}
	h.ID = target.uuid()
	return nil
}

// divide has a MIG device made at a place, unless a claim has it already.
func (i inventory) divide(all dradriver.Records, h *dradriver.Held, target device) error {
	for other, o := range all.Held() {
		if o.Device == h.Device && i.Stands(other, o) { // it is shared
			h.Parent, h.ID, h.Nodes = target.gpu.UUID, o.ID, o.Nodes
			return nil
		}
	}
	if err := i.clear(all, target); err != nil {
		return err
	}
	instance, err := i.divider.Divide(target.gpu.UUID, *target.place)
	h.Parent, h.ID, h.Nodes = target.gpu.UUID, instance.UUID, instance.Nodes
	return err
}

// clear removes the MIG devices that no claim has from the target's place.
func (i inventory) clear(all dradriver.Records, target device) error {
	for _, instance := range target.gpu.Instances {
		if all.Has(instance.UUID) || !overlap(target.gpu, instance, *target.place) {
			continue
		}
		i.log("MIG device %s (%s) of GPU %d is no claim's, and is removed", instance.UUID,
			instance.Profile, target.gpu.Index)
		if err := i.divider.Remove(target.gpu.UUID, instance.UUID); err != nil {
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

// Edits implements dradriver.Devices.
func (i inventory) Edits(r dradriver.Record) (out []specs.ContainerEdits, err error) {
	for _, h := range r.Devices {
		d, there := i.find(h.Device)
		if !there {
			return nil, fmt.Errorf("device %s is not there any more", h.Device)
		}
		out = append(out, i.state.Edits(i.settings, d.gpu.Minor, h.Nodes))
	}
	return out, nil
}

// Drop implements dradriver.Devices: it removes MIG devices that were made for claims. With a
// driver that is not loaded, or without the GPU, there are none.
func (i inventory) Drop(all []dradriver.Held) error {
	var errs []error
	for _, h := range all {
		known := i.state.Driver == "" || slices.ContainsFunc(i.state.GPUs,
			func(g gpu.GPU) bool { return g.UUID == h.Parent && g.MIG && !g.Reading.Lost })
		if h.Parent == "" || !known || i.divider == nil {
			continue
		}
		err := i.divider.Remove(h.Parent, h.ID)
		if err != nil && !errors.Is(err, gpu.ErrNoDriver) {
			errs = append(errs, fmt.Errorf("remove MIG device %s: %w", h.ID, err))
		}
	}
	return errors.Join(errs...)
}
