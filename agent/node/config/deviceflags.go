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
	name  string
	field *time.Duration
	// zero is set if the value 0 is allowed.
	zero bool
	help string
}

func (d *DevicePlugins) flags() []durationFlag {
	to, r, g := &d.Deadlines, &d.Deadlines.Registry, &d.Graces
	return []durationFlag{
		{"device-plugin-dial-timeout", &to.Dial, false, "how long a device plugin may take to serve " +
			"its socket, after it has registered or its connection was lost"},
		{"device-plugin-options-timeout", &to.Options, false, "how long a device plugin may take to " +
			"answer GetDevicePluginOptions"},
		{"device-plugin-first-list-timeout", &to.FirstList, false, "how long a device plugin may " +
			"take to send its first list of devices"},
		{"device-plugin-ended-pause", &to.Ended, false, "how long a device plugin that ended " +
			"ListAndWatch itself is not called again, unless it registers"},
		{"device-plugin-preferred-timeout", &to.Preferred, false, "how long a device plugin may take " +
			"to answer GetPreferredAllocation; afterwards the agent chooses alone"},
		{"device-plugin-allocate-timeout", &to.Allocate, false, "how long a device plugin may take " +
			"to answer Allocate; afterwards the pod waits and is tried again"},
		{"device-plugin-prestart-timeout", &to.PreStart, false, "how long a device plugin may take " +
			"to answer PreStartContainer"},
		{"device-plugin-released-timeout", &to.Released, false, "how long a device plugin that wants " +
			"to be told of released devices may take to answer; it is told again for 30s"},
		{"plugin-registry-dial-timeout", &r.Dial, false, "how long a plugin may take to serve its " +
			"socket in the plugin registry"},
		{"plugin-registry-info-timeout", &r.Info, false, "how long a plugin of the plugin registry " +
			"may take to answer GetInfo"},
		{"plugin-registry-notify-timeout", &r.Notify, false, "how long a plugin of the plugin " +
			"registry may take to answer NotifyRegistrationStatus"},
		{"device-plugin-capacity-grace", &g.Capacity, true, "how long a resource keeps its capacity " +
			"after its device plugin has gone, over restarts and boots; 0: none"},
		{"device-plugin-resource-grace", &g.Resource, true, "how long a resource stays on the node " +
			"with a capacity of 0 after that; 0: not at all"},
		{"device-plugin-allocatable-grace", &g.Allocatable, true, "how long a resource stays " +
			"allocatable after its device plugin has gone, so that an update of the plugin does not " +
			"show, over restarts and boots; 0: not at all, as the kubelet does"},
		{"device-plugin-empty-list-grace", &g.Empty, true, "how long a device plugin that begins " +
			"with an empty list has listed nothing yet, so that pods wait and capacity stays; 0: it " +
			"has no devices at once, as the kubelet says"},
	}
}

// add registers the flags; their defaults are the device manager's.
func (d *DevicePlugins) add(fs *pflag.FlagSet) {
	d.Deadlines, d.Graces = devicemanager.DefaultDeadlines(), devicemanager.DefaultGraces()
	for _, f := range d.flags() {
		fs.DurationVar(f.field, f.name, *f.field, f.help)
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
