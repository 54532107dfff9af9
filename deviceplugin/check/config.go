package check

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"tags.cncf.io/container-device-interface/pkg/cdi"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
)

// Config says what to check, and how. Exactly one of Command, Run and Dir is set.
type Config struct {
	// Command starts the plugin through a shell. {dir} in it stands for the directory of
	// kubelet.sock, {registry} for the plugin registry.
	Command string
	// Run is a plugin in this process. It serves until ctx is done and leaves nothing behind when
	// it returns.
	Run func(ctx context.Context, dirs Dirs) error
	// Dir is the device plugin directory of a plugin that already runs. No other device manager may
	// serve it.
	Dir string
	// Resource selects one of several registered plugins; empty: all of them, one after the other.
	Resource string
	// Only names checks or groups: these are made, and what they need. Empty: all.
	Only []string
	// before are resources that are checked already.
	before []string
	// watch is how long an idle plugin is observed; shortened in tests.
	watch time.Duration
	// Nodes are the machine's NUMA nodes.
	Nodes topology.NodeSet
	// CDI are the directories of the CDI files that answers name, where {dir} and {registry} stand for
	// what they do in Command; nil: the runtimes' own.
	CDI []string
	// Levers change the plugin's hardware. Checks whose lever is missing are skipped.
	Levers map[Lever]func(context.Context) error
	// Patience is the plugin's deadline for everything; the default is 10 s, as the kubelet waits
	// for a plugin that has registered.
	Patience time.Duration
	// OnResult gets each result as it comes. Optional.
	OnResult func(Result)
	// Output gets what Command writes. Optional.
	Output io.Writer
}

// Dirs are the directories where a plugin registers.
type Dirs = devicemanager.Dirs

// Lever is a change of hardware that a function of Config.Levers brings about.
type Lever string

// The levers, in pairs that are pulled one after the other.
const (
	// Sicken makes at least one healthy device unhealthy, Cure makes it healthy again.
	Sicken Lever = "sicken"
	Cure   Lever = "cure"
	// Vanish takes at least one device away, Return brings it back.
	Vanish Lever = "vanish"
	Return Lever = "return"
	// Multiply makes it 100,000 devices, which stay.
	Multiply Lever = "multiply"
)

// Levers lists all of them.
func Levers() []Lever { return []Lever{Sicken, Cure, Vanish, Return, Multiply} }

func (c Config) withDefaults() (Config, error) {
	if one(c.Command != "")+one(c.Run != nil)+one(c.Dir != "") != 1 {
		return c, errors.New("plugin check: give a command that starts the plugin, or the device " +
			"plugin directory of one that runs, and not both")
	}
	if err := known(c.Only); err != nil {
		return c, err
	}
	c.watch = cmp.Or(c.watch, watched)
	c.Patience = cmp.Or(c.Patience, 10*time.Second)
	c.Nodes = cmp.Or(c.Nodes, topology.NewNodeSet(0))
	if c.CDI == nil {
		c.CDI = cdi.DefaultSpecDirs
	}
	c.Output = cmp.Or[io.Writer](c.Output, io.Discard)
	if c.OnResult == nil {
		c.OnResult = func(Result) {}
	}
	return c, nil
}
