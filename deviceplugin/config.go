package deviceplugin

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

// Config is what New needs.
type Config struct {
	Dirs Dirs
	// NodeIDs are the machine's NUMA nodes. Other nodes that a plugin names are left out.
	NodeIDs topology.NodeSet
	// Strict: a plugin that cannot be reached when it registers is refused, as by the kubelet,
	// which connects before it answers.
	Strict bool
	// Before is what is known from before the agent started.
	Before Before
	// Cordons are the devices that new containers are not given; nil: there are none, and Cordon must
	// not be called.
	Cordons *cordon.Book
	// Deadlines of calls to plugins; zero fields get their default.
	Deadlines Deadlines
	// Graces say what a plugin that goes away leaves behind; zero is nothing.
	Graces Graces
	// MaxListBytes bounds one message of ListAndWatch; 64 MiB, a million devices. gRPC's own 4 MiB
	// is reached by plugins that share each device a thousandfold.
	MaxListBytes int
	// Changed is called after the inventory has changed; several changes may give one call. It must
	// not block. Nil is nobody.
	Changed func()
	// Refused hears of a list that is too long to be read, once for as long as it stays so. It must
	// not block. Nil is nobody.
	Refused func(RefusedList)
	// Stats is who hears of every message over connections to a socket, be it a plugin's or ours.
	// Lists of devices come to it as they are on the wire. It must not block. Nil is nobody.
	Stats func(socket string) stats.Handler
	// Registry gets the metrics; nil for none.
	Registry metrics.KubeRegistry
}

// Before is what is known of plugins before they have registered.
type Before struct {
	// Lists is what plugins said before. It is in the inventory, not connected, for what is left of
	// the graces. Nil: nothing is remembered.
	Lists *recall.Book
	// Resources that are not in Lists are in the inventory without devices, not connected, until
	// Graces.Capacity is over.
	Resources []string
}

// Dirs are where plugins make themselves known. They are created when missing.
type Dirs struct {
	// Plugins is the device plugin directory, <root>/device-plugins, where kubelet.sock is.
	Plugins string
	// Registry is where plugins can register by a socket of their own, <root>/plugins_registry; "" is
	// off.
	Registry string
}

// RefusedList is a list of devices that was not read because it is too long.
type RefusedList struct {
	Resource, Socket string
	// Kept is how many devices count as in the last list that was read.
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

// Graces are how long a resource outlives the connection to its last plugin, or what its next one
// says first. They go on while the agent is away.
type Graces struct {
	// Capacity is for the resource's devices and its capacity; the kubelet's 5 min.
	Capacity time.Duration
	// Resource is for the resource after that, with nothing; the kubelet's is without an end.
	Resource time.Duration
	// Allocatable is for the devices that were healthy to be in the node's allocatable, so that an
	// update of the plugin does not show; the kubelet's 0. It ends with Capacity at the latest.
	Allocatable time.Duration
	// Empty is for a plugin that begins with an empty list: so long it has listed nothing yet, and
	// what was there before counts. The kubelet's 0: the resource has no devices at once.
	Empty time.Duration
}

// DefaultGraces are the graces that flags have when they are not given.
func DefaultGraces() Graces {
	return Graces{
		Capacity: 5 * time.Minute, Resource: 10 * time.Minute, Allocatable: 30 * time.Second,
		Empty: 10 * time.Second,
	}
}

// DefaultDeadlines are the deadlines of calls that zero fields stand for.
func DefaultDeadlines() Deadlines { return Deadlines{}.withDefaults() }

// Deadlines bounds each call to a plugin.
type Deadlines struct {
	// Dial is how long a registered plugin may take to begin to serve; 10 s.
	Dial time.Duration
	// Options is for GetDevicePluginOptions; 5 s.
	Options time.Duration
	// FirstList is for the first message of ListAndWatch; 10 s.
	FirstList time.Duration
	// Ended is how long a plugin that ended ListAndWatch itself is not called again, unless it
	// registers; 2 min.
	Ended time.Duration
	// Preferred is for GetPreferredAllocation; 5 s.
	Preferred time.Duration
	// Allocate is for Allocate; 30 s, since plugins set up hardware in it.
	Allocate time.Duration
	// PreStart is for PreStartContainer; the kubelet's 30 s.
	PreStart time.Duration
	// Released is for lifecyclev1's Released; 10 s.
	Released time.Duration
	// Registry bounds the steps of a registration by the plugin registry.
	Registry watcher.Deadlines
}

func (d Deadlines) withDefaults() Deadlines {
	return Deadlines{
		Dial:      cmp.Or(d.Dial, 10*time.Second),
		Options:   cmp.Or(d.Options, 5*time.Second),
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
