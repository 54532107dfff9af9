package agent

import (
	"maps"
	"slices"

	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/deviceplugin"
)

// pluginSource is the source of problems of device plugins; their names are those of resources.
const pluginSource = "device-plugin"

// pluginProblems lists what is wrong with device plugins, by resource.
func pluginProblems(inventory deviceplugin.Inventory) (out []source.Problem) {
	names := slices.Sorted(maps.Keys(inventory.Resources))
	for name := range inventory.Refused {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		r := inventory.Resources[name]
		for _, p := range []struct{ reason, message string }{
			{"RegistrationRefused", inventory.Refused[name]},
			{"RegisteredBeforeServing", r.Early},
			{"NotConnected", r.Problem},
			{"FaultyList", r.Complaint},
		} {
			if p.message != "" {
				out = append(out, source.Problem{
					Source: pluginSource, Name: name, Reason: p.reason, Message: p.message,
				})
			}
		}
	}
	return out
}
