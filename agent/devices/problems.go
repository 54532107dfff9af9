package devices

import (
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// PluginSource is the source of problems of device plugins. Their names are those of resources.
const PluginSource = "device-plugin"

// Problems lists what is wrong with device plugins, by resource.
func Problems(peers []devicemanager.Peer) (out []source.Problem) {
	for _, peer := range peers {
		say := func(reason, message string) {
			if message != "" {
				out = append(out, source.Problem{
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
