package gpu

import (
	"context"
	"errors"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
	"github.com/numalet/numalet/topology"
)

// ErrNoDriver is the driver that is not there: not loaded, not installed, or being replaced.
var ErrNoDriver = errors.New("the NVIDIA driver is not there")

// Driver is how the plugin comes by a session with the driver. Package nvml has the real one, mock
// one of machines as data.
type Driver interface {
	// Open fails with ErrNoDriver where there is no driver now.
	Open() (Session, error)
}

// Session is the driver as long as it stays loaded. An error of any call ends it: it is closed, and
// opened again. One goroutine uses it.
type Session interface {
	// Read looks at all GPUs.
	Read() (Snapshot, error)
	// Wait returns the next event. Without one in that time it reports false.
	Wait(ctx context.Context, limit time.Duration) (Event, bool, error)
	Close()
}

// Snapshot is what the driver says at one moment. It does not change.
type Snapshot struct {
	// Driver is its version.
	Driver string
	// GPUs that can be reached, or that the driver says have been lost.
	GPUs []GPU
	// Silent are those that the driver has and that cannot be read, by index: what it says instead.
	Silent map[int]Silence
	// Links are between each two GPUs, by their positions in GPUs.
	Links prefer.Links
	// Files are the driver's files, as CDI has them; nil: nobody has asked, or Warnings say why.
	Files *specs.ContainerEdits
	// Warnings are for people: what is not as it should be, and what follows.
	Warnings []string
	// StandIn is a device node of the host that containers get in place of those of the GPUs, where
	// these are invented; "" is none.
	StandIn string
}

// Silence is a GPU that does not answer.
type Silence struct {
	// Lost: it has fallen off the bus. Else the next reading may have it again.
	Lost bool
	// Said is the driver's error.
	Said string
}

// GPU is one GPU.
type GPU struct {
	UUID, Name string
	// Index is the driver's number, Minor that of /dev/nvidia<n>.
	Index, Minor int
	// Bus is the PCI address as sysfs has it: "0000:1b:00.0".
	Bus  string
	Node topology.NodeID
	// NodeDoubt says that the driver has the GPU on another node than Node; "" is nothing.
	NodeDoubt string
	// MIG is whether the GPU is in MIG mode, and Instances what it is divided into.
	MIG       bool
	Instances []Instance
	Reading   Reading
}

// Instance is one MIG device.
type Instance struct {
	UUID string
	// Profile is "1g.10gb".
	Profile string
	// GPU and Compute are the driver's numbers of the GPU instance and of the compute instance in
	// it.
	GPU, Compute int
	// Nodes are the device nodes below /dev/nvidia-caps that give access.
	Nodes []string
}

// Reading is what can be read of a GPU's health.
type Reading struct {
	// Lost: the GPU does not answer, it has fallen off the bus.
	Lost bool
	// Silent is why the GPU cannot be read for now; "": it can.
	Silent string
	// Uncorrected counts uncorrectable memory errors since the last reset.
	Uncorrected uint64
	// RemapPending: a memory row waits for a reset to be replaced. RemapFailed: none was left.
	RemapPending, RemapFailed bool
	// LinksUp and LinksDown count the NVLinks that the GPU has.
	LinksUp, LinksDown int
	// Action is what the driver itself wants done; "" is nothing.
	Action Action
	// Advises is whether the driver says what it wants done at all; those before 565 do not.
	Advises bool
}

// Action is what a driver wants done to a GPU.
type Action string

// The actions of nvmlDeviceGpuRecoveryAction_t.
const (
	NoAction      Action = ""
	Reset         Action = "GPU reset"
	Reboot        Action = "node reboot"
	DrainP2P      Action = "end of peer-to-peer traffic"
	DrainAndReset Action = "drain and reset"
)

// NoInstance stands for the whole GPU in an event.
const NoInstance = -1

// Event is what the driver says by itself.
type Event struct {
	// GPU is its UUID; "" is an event of which the GPU is not known.
	GPU string
	// Instance and Compute number a MIG device of it, or are NoInstance.
	Instance, Compute int
	Kind              EventKind
	// XID is the driver's number of the error.
	XID uint64
}

// EventKind is what an event is of.
type EventKind string

// The kinds that the plugin listens to.
const (
	XIDEvent       EventKind = "XID"
	DoubleBitEvent EventKind = "DoubleBitEcc"
)
