package devicemanager

import "slices"

// mostDeclined bounds declined.
const mostDeclined = 64

// declined lists the last refused registrations, one for each resource, oldest first. The table
// drops an entry when a plugin of its resource registers.
type declined struct{ list []declinedPlugin }

type declinedPlugin struct{ resource, why string }

func (d *declined) add(resource, why string) {
	d.drop(resource)
	if len(d.list) == mostDeclined {
		d.list = slices.Delete(d.list, 0, 1)
	}
	d.list = append(d.list, declinedPlugin{resource, why})
}

func (d *declined) drop(resource string) {
	d.list = slices.DeleteFunc(d.list, func(p declinedPlugin) bool {
		return p.resource == resource
	})
}

func (d *declined) byResource() map[string]string {
	out := map[string]string{}
	for _, p := range d.list {
		out[p.resource] = p.why
	}
	return out
}
