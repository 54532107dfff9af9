package gpu

import (
	"context"
	"errors"
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/gpu/prefer"
	"github.com/numalet/numalet/topology"
)

// ErrNoDriver says that the driver is absent: not loaded, not installed, or being replaced.
var ErrNoDriver = errors.New("the NVIDIA driver is not there")

// Driver opens sessions with the driver. Package nvml has the real one, package mock one whose
// machines are data.
type Driver interface {
	// Open fails with ErrNoDriver if there is no driver now.
	Open() (Session, error)
}

// Session is the driver while it stays loaded. After an error of any call the session is closed,
// and a new one is opened. Calls never overlap.
type Session interface {
	// Read returns the state of all GPUs.
	Read() (Snapshot, error)
	// Wait returns the next event; false: none came within limit.
	Wait(ctx context.Context, limit time.Duration) (Event, bool, error)
	Close()
}

// Snapshot is the driver's state at one moment. It is immutable.
type Snapshot struct {
	// Driver is the driver's version, CUDA the newest version of CUDA that it supports; "": unknown.
	Driver, CUDA string
	// GPUs holds the GPUs that answer, and those that the driver reports as lost.
	GPUs []GPU
	// Silent holds the GPUs that the driver has but cannot read, by index.
	Silent map[int]Silence
	// Links holds the link between any two GPUs, by their positions in GPUs.
	Links prefer.Links
	// Files holds the driver's files as CDI edits; nil: not requested, or Warnings say why.
	Files *specs.ContainerEdits
	// Warnings tell people what is wrong with the host, and what follows.
	Warnings []string
	// StandIn is a device node of the host that containers get instead of those of invented GPUs;
	// "": none.
	StandIn string
}

// Silence describes a GPU that does not answer.
type Silence struct {
	// Lost: it has fallen off the bus. Otherwise the next Read may succeed.
	Lost bool
	// Said is the driver's error.
	Said string
}

type GPU struct {
	UUID, Name string
	// Index is the driver's number, Minor the n of /dev/nvidia<n>.
	Index, Minor int
	// Bus is the PCI address in the form of sysfs: "0000:1b:00.0".
	Bus string
	// Root is the PCIe root complex, in the form of sysfs: "pci0000:1a"; "": unknown.
	Root string
	Node topology.NodeID
	// NodeDoubt says that the driver names another NUMA node than Node; "": it does not.
	NodeDoubt string
	// MIG: the GPU is in MIG mode; Instances holds its MIG devices.
	MIG       bool
	Instances []Instance
	Reading   Reading
	Traits    Traits
}

// Traits do not change while the driver is loaded; a zero value: unknown.
type Traits struct {
	// Brand and Architecture are NVIDIA's words, as "Nvidia" and "Hopper"; Compute is the compute
	// capability, as "9.0".
	Brand, Architecture, Compute string
	// Memory is in bytes.
	Memory uint64
	// Partitions are all places that MIG devices can have, if the GPU is in MIG mode.
	Partitions []Partition
}

// Partition is a place for a MIG device: a GPU has several that overlap.
type Partition struct {
	// Profile is a name like "1g.10gb", ID the driver's number of it.
	Profile string
	ID      int
	// Start is its first memory slice, Size the number of them.
	Start, Size int
	// Compute is the number of compute slices, JPEG and OFA that of engines for pictures and optical
	// flow.
	Compute, JPEG, OFA int
	// Memory is in bytes.
	Memory uint64
}

// Divider is the ability of a Driver to make and remove MIG devices. Its calls may come beside
// those of a session.
type Divider interface {
	// Divide makes a MIG device, with one compute instance that has all of it.
	Divide(gpu string, place Partition) (Instance, error)
	// Remove removes a MIG device by its UUID. It fails while a process uses the device.
	Remove(gpu, instance string) error
}

// Instance is one MIG device.
type Instance struct {
	UUID string
	// Profile is a name like "1g.10gb".
	Profile string
	// GPU and Compute are the driver's numbers of the GPU instance and of the compute instance in
	// it.
	GPU, Compute int
	// Start is its first memory slice; UnknownStart: the driver does not tell.
	Start int
	// Nodes lists the device nodes below /dev/nvidia-caps that give access.
	Nodes []string
}

// UnknownStart stands for a place that the driver does not tell.
const UnknownStart = -1

// Reading holds the readable part of a GPU's health.
type Reading struct {
	// Lost: the GPU has fallen off the bus and does not answer.
	Lost bool
	// Silent says why the GPU cannot be read for now; "": it can.
	Silent string
	// Uncorrected counts uncorrectable memory errors since the last reset.
	Uncorrected uint64
	// RemapPending: a memory row waits for a reset to be replaced. RemapFailed: no spare row was
	// left.
	RemapPending, RemapFailed bool
	// LinksUp and LinksDown count the NVLinks that the GPU has.
	LinksUp, LinksDown int
	// Action is the recovery that the driver asks for; "": none.
	Action Action
	// Advises: the driver reports recovery actions at all; versions before 565 do not.
	Advises bool
}

// Action is a recovery that a driver asks for.
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

// Event is something that the driver reports without being asked.
type Event struct {
	// GPU is a UUID; "": the GPU is not known.
	GPU string
	// Instance and Compute number one of its MIG devices, or are NoInstance.
	Instance, Compute int
	Kind              EventKind
	// XID is the driver's number for the error.
	XID uint64
}

// EventKind says what an event reports.
type EventKind string

// The kinds of events that the plugin subscribes to.
const (
	XIDEvent       EventKind = "XID"
	DoubleBitEvent EventKind = "DoubleBitEcc"
)
