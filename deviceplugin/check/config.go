package check

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/topology"
)

// Config says what is checked, and how. Of Command, Run and Dir one is given.
type Config struct {
	// Command starts the plugin, as a shell would. {dir} in it stands for the directory where
	// kubelet.sock is, {registry} for the plugin registry.
	Command string
	// Run is a plugin in this process. It serves until ctx is done and has left nothing behind
	// when it returns.
	Run func(ctx context.Context, dirs Dirs) error
	// Dir is the device plugin directory of a plugin that runs already. No other device manager
	// may serve it.
	Dir string
	// Resource is whose plugin is checked, of several that register; the first one when empty.
	Resource string
	// Nodes are the machine's NUMA nodes.
	Nodes topology.NodeSet
	// Levers make the plugin's hardware change. Without one, its checks are not made.
	Levers map[Lever]func(context.Context) error
	// Patience is how long the plugin may take for anything; 10 s, as the kubelet waits for a
	// plugin that has registered.
	Patience time.Duration
	// Told hears of each result as it comes. Nil is nobody.
	Told func(Result)
	// Output gets what a Command writes. Nil is nobody.
	Output io.Writer
}

// Dirs are where a plugin makes itself known.
type Dirs = deviceplugin.Dirs

// Lever is something that befalls hardware, which somebody has to bring about.
type Lever string

// The levers. Each pair is pulled one after the other.
const (
	// Sicken makes at least one healthy device unhealthy, Cure makes it healthy again.
	Sicken Lever = "sicken"
	Cure   Lever = "cure"
	// Vanish takes at least one device away, Return brings it back.
	Vanish Lever = "vanish"
	Return Lever = "return"
	// Multiply makes it 100,000 devices. They stay.
	Multiply Lever = "multiply"
)

// Levers lists all of them.
func Levers() []Lever { return []Lever{Sicken, Cure, Vanish, Return, Multiply} }

func (c Config) withDefaults() (Config, error) {
	if one(c.Command != "")+one(c.Run != nil)+one(c.Dir != "") != 1 {
		return c, errors.New("plugin check: give a command that starts the plugin, or the device " +
			"plugin directory of one that runs, and not both")
	}
	c.Patience = cmp.Or(c.Patience, 10*time.Second)
	c.Nodes = cmp.Or(c.Nodes, topology.NewNodeSet(0))
	c.Output = cmp.Or[io.Writer](c.Output, io.Discard)
	if c.Told == nil {
		c.Told = func(Result) {}
	}
	return c, nil
}
