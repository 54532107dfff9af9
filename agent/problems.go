package agent

import (
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// PluginSource is the source of problems of device plugins; their names are those of resources.
const PluginSource = "device-plugin"

// problems are what is wrong with what the sources have, and then with device plugins.
func problems(p parts) []source.Problem {
	return append(p.sources.List(), pluginProblems(p.plugins)...)
}

// pluginProblems lists what is wrong with device plugins, by resource.
func pluginProblems(plugins *devicemanager.Plugins) (out []source.Problem) {
	for _, peer := range plugins.Peers() {
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
