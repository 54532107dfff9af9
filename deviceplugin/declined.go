package deviceplugin

import "slices"

// mostDeclined bounds declined.
const mostDeclined = 64

// declined are the registrations that were refused last, by resource, in order of time. One is
// dropped when a plugin of the resource is taken.
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
