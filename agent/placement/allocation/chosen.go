package allocation

import (
	"fmt"
	"slices"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// A user can choose a container's devices by annotation. The container holds them before it is
// placed, like what it had before a reboot, and everything else is placed around them. Devices that a
// container already has come before a choice.

// chosen is a demand that a user may have chosen devices for.
type chosen interface {
	// preset adds to got what was chosen and is not there yet. The error says why it cannot be had.
	preset(got *Container) error
	// choices describes what was chosen; empty: nothing.
	choices() []string
}

func (a claimant) preset(got *Container) (err error) {
	for _, one := range a.demands {
		if c, ok := one.(chosen); ok && err == nil {
			err = c.preset(got)
		}
	}
	return err
}

// presets returns what was chosen for the pod's containers.
func (d *draft) presets() (out []Container) {
	if len(d.view.Chosen) == 0 {
		return nil
	}
	for _, a := range d.containers {
		var c Container
		_ = a.preset(&c)
		out = append(out, c)
	}
	return out
}

// ChosenError says why a container cannot have a device that was chosen for it.
type ChosenError struct{ Resource, Container, ID, Why string }

func (e *ChosenError) Error() string {
	return fmt.Sprintf("annotation %s chooses device %q, and %s",
		podspec.ChoiceAnnotation(e.Resource, e.Container), oneline.Cut(e.ID, 96), e.Why)
}

// Reason returns the reason of the rejection.
func (e *ChosenError) Reason() string { return ReasonChosen }

// preset adds all chosen devices even if one cannot be had, so that other containers get none of
// them.
func (d deviceDemand) preset(got *Container) (err error) {
	if !slices.ContainsFunc(d.requests, func(r deviceRequest) bool { return r.chosen != nil }) {
		return nil
	}
	var gets Devices
	for _, r := range d.requests {
		set, ok := got.device(r.resource.Name)
		if !ok && r.chosen == nil {
			continue
		}
		if !ok {
			ids := slices.SortedFunc(slices.Values(r.chosen), devicemanager.CompareIDs)
			set = NewDeviceSet(r.resource, ids)
			for _, id := range ids {
				if why := d.from.refuses(r, id); why != "" && err == nil {
					err = &ChosenError{r.resource.Name, d.container, id, why}
				}
			}
		}
		gets = append(gets, set)
	}
	got.set(gets)
	return err
}

// refuses says why a container cannot have the device; "": it can.
func (p *devices) refuses(r deviceRequest, id string) string {
	d, found := r.resource.Find(id)
	switch {
	case !found:
		return "its device plugin lists none of that id; choose one that the plugin lists"
	case !d.Healthy:
		return "it is not healthy; choose another one, or wait until it is"
	case p.reusable[r.resource.Name].Has(id):
		return ""
	case d.Cordoned:
		return "it is cordoned; choose another one, or uncordon it (numalet device uncordon)"
	case p.claimed[r.resource.Name][id] != "":
		return p.claimed[r.resource.Name][id] + "; choose one that is free"
	case p.taken[r.resource.Name].Has(id):
		return "another pod has it; choose one that is free"
	}
	return ""
}

func (d deviceDemand) choices() (out []string) {
	for _, r := range d.requests {
		if r.chosen == nil || d.container == "" {
			continue
		}
		where := topology.NodeSet{}
		for _, set := range nodesOf(r.resource, r.chosen) {
			where = where.Union(set)
		}
		text := fmt.Sprintf("annotation %s chooses devices",
			podspec.ChoiceAnnotation(r.resource.Name, d.container))
		if !where.IsEmpty() {
			text += fmt.Sprintf(" of NUMA nodes %s", where)
		}
		out = append(out, text)
	}
	return out
}

// choices describes what was chosen for the container; "": for any container.
func (d *draft) choices(container string) (out []string) {
	if len(d.view.Chosen) == 0 {
		return nil
	}
	for _, a := range d.containers {
		for _, one := range a.demands {
			if c, ok := one.(chosen); ok && (container == "" || container == a.Name) {
				out = append(out, c.choices()...)
			}
		}
	}
	return out
}
