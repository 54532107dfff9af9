//go:build cgo

package nvml

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/internal/await"
)

const (
	// waitSlice bounds one wait in the library, after which the context is checked.
	waitSlice = time.Second
	// noInstance stands for the whole GPU in the library's events.
	noInstance = 0xFFFFFFFF
)

// Driver opens the library.
type Driver struct {
	// Library is the result of go-nvml's New, or a mock.
	Library nvml.Interface
	// Root holds /sys and /proc; "": the machine's own.
	Root string
	// Files says whether and where to look for the driver's files.
	Files gpu.DriverFiles
}

// Open implements gpu.Driver.
func (d Driver) Open() (gpu.Session, error) {
	if ret := d.Library.Init(); ret != nvml.SUCCESS {
		return nil, failed("initialize NVML", ret)
	}
	s := &session{Driver: d, functions: lookUp(d.Library), seen: map[string]*seen{}}
	if err := s.listen(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// failed makes an error from a result of the library; it is gpu.ErrNoDriver if there is no driver.
func failed(what string, ret nvml.Return) error {
	switch ret {
	case nvml.ERROR_LIBRARY_NOT_FOUND, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_UNINITIALIZED,
		nvml.ERROR_LIB_RM_VERSION_MISMATCH:
		return fmt.Errorf("%w: %s: %s", gpu.ErrNoDriver, what, ret.String())
	}
	return fmt.Errorf("%s: %s", what, ret.String())
}

// errorOf returns the error of a call about one GPU; nil if it succeeded.
func errorOf(what string, ret nvml.Return) error {
	switch ret {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_NOT_FOUND:
		return fmt.Errorf("%w: %s: %s", errGone, what, ret.String())
	}
	return failed(what, ret)
}

// errGone says that a GPU has fallen off the bus.
var errGone = errors.New("the GPU is lost")

// session is the initialized library.
type session struct {
	Driver
	functions
	events nvml.EventSet // nil: this driver has no events
	// seen holds the GPUs of this session by UUID.
	seen map[string]*seen
	// files holds the driver's files; nil until they are found.
	files *specs.ContainerEdits
}

// seen holds what a session remembers of a GPU.
type seen struct {
	// links is the largest number of NVLinks that were up.
	links int
	// listens: its events are subscribed to.
	listens bool
	// traits are read once; places are read when the GPU is in MIG mode.
	traits *gpu.Traits
	places []gpu.Partition
}

// listen opens the event set. A driver without events is fine: readings remain.
func (s *session) listen() error {
	set, ret := s.Library.EventSetCreate()
	switch ret {
	case nvml.SUCCESS:
		s.events = set
	case nvml.ERROR_NOT_SUPPORTED:
	default:
		return failed("create event set", ret)
	}
	return nil
}

// Close implements gpu.Session.
func (s *session) Close() {
	if s.events != nil {
		_ = s.events.Free()
	}
	_ = s.Library.Shutdown() // the next Open reports what fails here
}

// Wait implements gpu.Session.
func (s *session) Wait(ctx context.Context, limit time.Duration) (gpu.Event, bool, error) {
	deadline := time.Now().Add(limit)
	for {
		left := min(time.Until(deadline), waitSlice)
		if ctx.Err() != nil || left <= 0 {
			return gpu.Event{}, false, nil
		}
		event, found, err := s.wait(ctx, left)
		if found || err != nil {
			return event, found, err
		}
	}
}

func (s *session) wait(ctx context.Context, limit time.Duration) (gpu.Event, bool, error) {
	if s.events == nil {
		await.For(ctx, limit)
		return gpu.Event{}, false, nil
	}
	data, ret := s.events.Wait(uint32(max(1, limit.Milliseconds())))
	switch ret {
	case nvml.SUCCESS:
		return eventOf(data), true, nil
	case nvml.ERROR_TIMEOUT:
		return gpu.Event{}, false, nil
	case nvml.ERROR_GPU_IS_LOST: // the next reading says which GPU; the set is useless now
		time.Sleep(limit)
		return gpu.Event{}, false, s.again()
	default:
		return gpu.Event{}, false, failed("wait for events", ret)
	}
}

// again makes a new event set. The next readings subscribe the remaining GPUs.
func (s *session) again() error {
	_ = s.events.Free() // useless either way
	s.events = nil
	for _, known := range s.seen {
		known.listens = false
	}
	return s.listen()
}

func eventOf(data nvml.EventData) gpu.Event {
	out := gpu.Event{Instance: instanceOf(data.GpuInstanceId),
		Compute: instanceOf(data.ComputeInstanceId), Kind: gpu.XIDEvent, XID: data.EventData}
	if data.EventType == nvml.EventTypeDoubleBitEccError {
		out.Kind, out.XID = gpu.DoubleBitEvent, 0
	}
	if data.Device != nil {
		if uuid, ret := data.Device.GetUUID(); ret == nvml.SUCCESS {
			out.GPU = uuid
		}
	}
	return out
}

func instanceOf(id uint32) int {
	if id == noInstance {
		return gpu.NoInstance
	}
	return int(id)
}

// Read implements gpu.Session.
func (s *session) Read() (gpu.Snapshot, error) {
	version, ret := s.Library.SystemGetDriverVersion()
	if ret != nvml.SUCCESS {
		return gpu.Snapshot{}, failed("read driver version", ret)
	}
	count, ret := s.Library.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return gpu.Snapshot{}, failed("count GPUs", ret)
	}
	out := gpu.Snapshot{Driver: version, CUDA: cuda(s.Library), Silent: map[int]gpu.Silence{},
		Warnings: s.lacking()}
	var handles []nvml.Device
	for i := range count {
		handle, ret := s.Library.DeviceGetHandleByIndex(i)
		err := errorOf("open the GPU", ret)
		var g gpu.GPU
		if err == nil {
			g, err = s.gpu(handle, i, &out.Warnings)
		}
		switch {
		case errors.Is(err, gpu.ErrNoDriver):
			return out, err
		case err != nil: // one GPU's failure is not the others'
			out.Silent[i] = gpu.Silence{Lost: errors.Is(err, errGone), Said: err.Error()}
		default:
			handles, out.GPUs = append(handles, handle), append(out.GPUs, g)
		}
	}
	out.Links = s.linksOf(handles, out.GPUs)
	files, err := s.driverFiles()
	if err != nil {
		out.Warnings = append(out.Warnings, err.Error())
	}
	out.Files = files
	return out, nil
}
