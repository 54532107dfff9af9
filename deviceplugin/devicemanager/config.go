package devicemanager

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc/stats"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/deviceplugin/cordon"
	"github.com/numalet/numalet/deviceplugin/recall"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/topology"
)

// Config configures New.
type Config struct {
	Dirs Dirs
	// NodeIDs holds the machine's NUMA nodes. Other nodes that a plugin names are ignored.
	NodeIDs topology.NodeSet
	// Strict refuses a plugin that cannot be reached when it registers, as the kubelet does, which
	// connects before it answers.
	Strict bool
	// Before holds what is known from before the agent started.
	Before Before
	// Cordons holds the devices that new containers do not get; nil: there are none, and Cordon must
	// not be called.
	Cordons *cordon.Book
	// Deadlines of calls to plugins; zero fields get their default.
	Deadlines Deadlines
	// Graces bound how long the devices of an absent plugin count; zero: not at all.
	Graces Graces
	// MaxListBytes bounds one message of ListAndWatch. The default is 64 MiB, a million devices:
	// plugins that share each device a thousandfold exceed gRPC's own 4 MiB.
	MaxListBytes int
	// Changed is called after the inventory changed; several changes may give one call. It must not
	// block. Optional.
	Changed func()
	// Refused is called when a list is too long to be read, once while that lasts. It must not
	// block. Optional.
	Refused func(RefusedList)
	// Stats returns the handler that sees every message over connections to a socket, ours or a
	// plugin's. It sees lists of devices undecoded. It must not block. Optional.
	Stats func(socket string) stats.Handler
	// Registry takes the metrics; nil: there are none.
	Registry metrics.KubeRegistry
}

// Before holds what is known of plugins before they register.
type Before struct {
	// Lists holds what plugins last said. Those devices are in the inventory, not connected, for
	// the rest of the graces. Run keeps it current. Nil: nothing is remembered.
	Lists *recall.Book
	// Resources that are not in Lists are in the inventory without devices, not connected, until
	// Graces.Capacity is over.
	Resources []string
}

// Dirs are the directories where plugins register, which are created if missing, and who admits
// those that are no device plugins.
type Dirs struct {
	// Plugins is the device plugin directory, <root>/device-plugins, which holds kubelet.sock.
	Plugins string
	// Registry is the plugin registry, <root>/plugins_registry, where plugins register by a socket
	// of their own; "": off.
	Registry string
	// Others admit plugins of other types in Registry, by type. Optional.
	Others map[string]watcher.Handler
}

// RefusedList describes a list of devices that was too long to be read.
type RefusedList struct {
	Resource, Socket string
	// Kept is the number of devices of the last list that was read; they still count.
	Kept int
	// Limit is the bound in bytes.
	Limit int
}

// String says what happened and what to do about it.
func (r RefusedList) String() string {
	kept := "it has listed nothing that could be kept"
	if r.Kept > 0 {
		kept = fmt.Sprintf("the %d devices of its last list count on, with the health they had",
			r.Kept)
	}
	return fmt.Sprintf("plugin on %s: its list of devices of %s has more than %d bytes and was "+
		"not read; %s: let it list fewer devices, or shorter ids",
		filepath.Base(r.Socket), r.Resource, r.Limit, kept)
}

// Graces bound how long a resource outlives the connection to its last plugin, or the first empty
// list of the next one. They go on while the agent is down.
type Graces struct {
	// Capacity keeps the resource's devices and its capacity; the kubelet's 5 min.
	Capacity time.Duration
	// Resource keeps the resource after that, with no devices; the kubelet keeps it for ever.
	Resource time.Duration
	// Allocatable keeps the healthy devices in the node's allocatable, so that an update of the
	// plugin does not show; the kubelet's is 0. It ends with Capacity at the latest.
	Allocatable time.Duration
	// Empty applies to a plugin whose first list is empty: for so long it has listed nothing yet
	// and the devices of before count. The kubelet's is 0: the resource has no devices at once.
	Empty time.Duration
}

// graceEnd is the end of a grace. The link of an absent plugin reports kind, so long after the plugin was last there.
type graceEnd struct {
	after time.Duration
	kind  eventKind
}

// ends returns the ends of the graces in their order.
func (g Graces) ends() []graceEnd {
	return []graceEnd{
		{min(g.Allocatable, g.Capacity), linkFaded},
		{g.Capacity, linkSpent},
		{g.Capacity + g.Resource, linkExpired},
	}
}

// DefaultGraces returns the defaults of the flags.
func DefaultGraces() Graces {
	return Graces{
		Capacity: 5 * time.Minute, Resource: 10 * time.Minute, Allocatable: 30 * time.Second,
		Empty: 10 * time.Second,
	}
}

// DefaultDeadlines returns the deadlines that zero fields stand for.
func DefaultDeadlines() Deadlines { return Deadlines{}.withDefaults() }

// Deadlines bounds each call to a plugin.
type Deadlines struct {
	// Dial bounds how long a registered plugin may take to begin to serve; 10 s.
	Dial time.Duration
	// Options bounds GetDevicePluginOptions; 5 s.
	Options time.Duration
	// Lifecycle bounds the question whether the plugin serves lifecyclev1's Released, for which its
	// list waits; 5 s.
	Lifecycle time.Duration
	// FirstList bounds the wait for the first message of ListAndWatch; 10 s.
	FirstList time.Duration
	// Ended is the pause after a plugin itself ended ListAndWatch, unless it registers again; 2
	// min.
	Ended time.Duration
	// Preferred bounds GetPreferredAllocation; 5 s.
	Preferred time.Duration
	// Allocate bounds Allocate; 30 s, since plugins set up hardware in it.
	Allocate time.Duration
	// PreStart bounds PreStartContainer; the kubelet's 30 s.
	PreStart time.Duration
	// Released bounds lifecyclev1's Released; 10 s.
	Released time.Duration
	// Registry bounds the steps of a registration by the plugin registry.
	Registry watcher.Deadlines
}

func (d Deadlines) withDefaults() Deadlines {
	return Deadlines{
		Dial:      cmp.Or(d.Dial, 10*time.Second),
		Options:   cmp.Or(d.Options, 5*time.Second),
		Lifecycle: cmp.Or(d.Lifecycle, 5*time.Second),
		FirstList: cmp.Or(d.FirstList, 10*time.Second),
		Ended:     cmp.Or(d.Ended, 2*time.Minute),
		Preferred: cmp.Or(d.Preferred, 5*time.Second),
		Allocate:  cmp.Or(d.Allocate, 30*time.Second),
		PreStart:  cmp.Or(d.PreStart, 30*time.Second),
		Released:  cmp.Or(d.Released, 10*time.Second),
		Registry:  d.Registry.WithDefaults(),
	}
}

func (c Config) withDefaults() (Config, error) {
	if c.Dirs.Plugins == "" {
		return c, errors.New("device plugins: Dirs.Plugins is empty: name the device-plugins directory")
	}
	c.Deadlines = c.Deadlines.withDefaults()
	c.MaxListBytes = cmp.Or(c.MaxListBytes, 64<<20)
	if c.Refused == nil {
		c.Refused = func(RefusedList) {}
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return c, nil
}
