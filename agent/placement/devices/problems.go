package devices

import (
	"fmt"
	"maps"
	"slices"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/internal/complaint"
)

// PluginSource is the source of problems of device plugins. Their names are those of resources.
const PluginSource = "device-plugin"

// DriverSource is the source of problems of drivers of resource claims, by their names.
const DriverSource = "dra-driver"

// DriverProblems lists what is wrong with drivers of resource claims.
func DriverProblems(drivers []dra.Driver) (out []complaint.Problem) {
	for _, d := range drivers {
		say := func(reason, message string) {
			out = append(out, complaint.Problem{
				Source: DriverSource, Name: d.Name, Reason: reason, Message: message,
			})
		}
		if d.AwaySince != nil {
			say("NotConnected", d.Problem())
		}
		for _, call := range slices.Sorted(maps.Keys(d.Calls)) {
			if err := d.Calls[call].LastError; err != "" {
				say("CallFailed", fmt.Sprintf("%s: %s; a driver has to answer for each claim that it "+
					"is asked about, in time and as often as it is asked", call, err))
			}
		}
	}
	return out
}

// Problems lists what is wrong with device plugins, by resource.
func Problems(peers []devicemanager.Peer) (out []complaint.Problem) {
	for _, peer := range peers {
		say := func(reason, message string) {
			if message != "" {
				out = append(out, complaint.Problem{
					Source: PluginSource, Name: peer.Resource, Reason: reason, Message: message,
				})
			}
		}
		say("NotConnected", peer.Problem)
		for _, wrong := range peer.Complaints {
			say(wrong.Reason, peer.On()+wrong.Message)
		}
		for _, message := range peer.Failing() {
			say("CallFailed", message)
		}
	}
	return out
}
