package agent

import (
	"maps"
	"slices"

	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/deviceplugin"
)

// pluginSource is the source of problems of device plugins; their names are those of resources.
const pluginSource = "device-plugin"

// pluginProblems lists what is wrong with device plugins, by resource, and then the calls to them
// that fail.
func pluginProblems(plugins *deviceplugin.Plugins) (out []source.Problem) {
	inventory := plugins.Inventory()
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
	for _, peer := range plugins.Peers() {
		for _, message := range peer.Failing() {
			out = append(out, source.Problem{
				Source: pluginSource, Name: peer.Resource, Reason: "CallFailed", Message: message,
			})
		}
	}
	return out
}
