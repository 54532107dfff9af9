package config

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// DevicePlugins bounds calls to device plugins, and says how long resources outlive their plugins.
type DevicePlugins struct {
	Deadlines devicemanager.Deadlines
	Graces    devicemanager.Graces
	// Wait bounds how long a pod waits for its devices; 0 rejects it at once.
	Wait time.Duration
	// Strict requires plugins to serve before they register.
	Strict bool
}

// durationFlag is a flag that sets a field of DevicePlugins.
type durationFlag struct {
	name, help string
	field      *time.Duration
	usual      time.Duration
	// zero is set if the value 0 is allowed.
	zero bool
}

func (d *DevicePlugins) flags() []durationFlag {
	to, usual := &d.Deadlines, devicemanager.DefaultDeadlines()
	r, registry := &to.Registry, usual.Registry
	g, graces := &d.Graces, devicemanager.DefaultGraces()
	return []durationFlag{
		{"device-plugin-dial-timeout",
			"how long a device plugin may take to serve its socket, after " +
				"it has registered or its connection was lost", &to.Dial, usual.Dial, false},
		{"device-plugin-options-timeout", "how long a device plugin may take to answer " +
			"GetDevicePluginOptions", &to.Options, usual.Options, false},
		{"device-plugin-first-list-timeout",
			"how long a device plugin may take to send its first " +
				"list of devices", &to.FirstList, usual.FirstList, false},
		{"device-plugin-ended-pause",
			"how long a device plugin that ended ListAndWatch itself is not called again, unless it " +
				"registers", &to.Ended, usual.Ended, false},
		{"device-plugin-preferred-timeout", "how long a device plugin may take to answer " +
			"GetPreferredAllocation; afterwards the agent chooses alone", &to.Preferred,
			usual.Preferred, false},
		{"device-plugin-allocate-timeout",
			"how long a device plugin may take to answer Allocate; " +
				"afterwards the pod waits and is tried again", &to.Allocate, usual.Allocate, false},
		{"device-plugin-prestart-timeout", "how long a device plugin may take to answer " +
			"PreStartContainer", &to.PreStart, usual.PreStart, false},
		{"device-plugin-released-timeout", "how long a device plugin that wants to be told of " +
			"released devices may take to answer; it is told again for 30s", &to.Released,
			usual.Released, false},
		{"plugin-registry-dial-timeout", "how long a plugin may take to serve its socket in the " +
			"plugin registry", &r.Dial, registry.Dial, false},
		{"plugin-registry-info-timeout", "how long a plugin of the plugin registry may take to " +
			"answer GetInfo", &r.Info, registry.Info, false},
		{"plugin-registry-notify-timeout", "how long a plugin of the plugin registry may take to " +
			"answer NotifyRegistrationStatus", &r.Notify, registry.Notify, false},
		{"device-plugin-capacity-grace",
			"how long a resource keeps its capacity after its device " +
				"plugin has gone, over restarts and boots; 0: none", &g.Capacity, graces.Capacity,
			true},
		{"device-plugin-resource-grace",
			"how long a resource stays on the node with a capacity of 0 after that; 0: not at all",
			&g.Resource, graces.Resource, true},
		{"device-plugin-allocatable-grace",
			"how long a resource stays allocatable after its device " +
				"plugin has gone, so that an update of the plugin does not show, over restarts and " +
				"boots; 0: not at all, as the kubelet does", &g.Allocatable, graces.Allocatable, true},
		{"device-plugin-empty-list-grace",
			"how long a device plugin that begins with an empty list has listed nothing yet, so " +
				"that pods wait and capacity stays; 0: it has no devices at once, as the kubelet " +
				"says", &g.Empty, graces.Empty, true},
	}
}

func (d *DevicePlugins) add(fs *pflag.FlagSet) {
	for _, f := range d.flags() {
		fs.DurationVar(f.field, f.name, f.usual, f.help)
	}
	fs.BoolVar(&d.Strict, "device-plugin-strict-registration", false, "connect to a device plugin "+
		"before Register is answered, and fail the call if that takes longer than "+
		"--device-plugin-dial-timeout, as the kubelet does; else plugins may begin to serve after "+
		"they have registered")
}

// check reports flags with invalid values.
func (d *DevicePlugins) check(p *problems) {
	for _, f := range d.flags() {
		switch v := *f.field; {
		case v < 0 && f.zero:
			p.invalid("--"+f.name, v.String(), "must not be negative")
		case v <= 0 && !f.zero:
			p.invalid("--"+f.name, v.String(), "must be more than 0")
		}
	}
}
