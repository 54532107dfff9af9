package health

import (
	"context"
	"encoding/json"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
)

// DriversFile is the file with what drivers of resource claims said of their devices, in the
// kubelet's format.
const DriversFile = "dra_health_state"

// maxDriversFile bounds the file: a thousand devices of a few drivers, with messages.
const maxDriversFile = 64 << 20

// Drivers knows the health of devices of resource claims, as their drivers tell it (KEP-4680). Its
// methods are safe for concurrent use.
type Drivers struct {
	path    string
	changed func()
	wake    chan struct{} // capacity 1

	mu    sync.Mutex
	known map[string]driverHealth
	dirty bool // the file has something else
}

// driverHealth and deviceHealth are as the kubelet writes them; devices are by "pool/device".
type (
	driverHealth struct{ Devices map[string]deviceHealth }
	deviceHealth struct {
		PoolName, DeviceName string
		Health               dra.Health
		LastUpdated          time.Time
		HealthCheckTimeout   time.Duration
		Message              string `json:",omitempty"`
	}
)

// OpenDrivers reads what an earlier run knew. changed is called when the health of a device is
// another; it must not block. A file that cannot be used is moved aside: drivers tell it again.
func OpenDrivers(ctx context.Context, dir string, changed func()) *Drivers {
	d := &Drivers{path: filepath.Join(dir, DriversFile), changed: changed,
		wake: make(chan struct{}, 1)}
	var err error
	d.known, err = files.LoadJSON[map[string]driverHealth](d.path, maxDriversFile, time.Now())
	if err != nil {
		klog.FromContext(ctx).Error(err, "Health of resource claims' devices is not known until "+
			"their drivers tell it again")
	}
	if d.known == nil {
		d.known = map[string]driverHealth{}
	}
	return d
}

// Hear takes all that a driver says of its devices; nil: it says nothing any more.
func (d *Drivers) Hear(driver string, devices []dra.DeviceHealth) {
	next := driverHealth{Devices: map[string]deviceHealth{}}
	for _, one := range devices {
		next.Devices[one.Pool+"/"+one.Name] = deviceHealth{one.Pool, one.Name, one.Health, one.Updated,
			one.Timeout, one.Message}
	}
	if d.put(driver, next) {
		d.changed()
	}
	await.Wake(d.wake)
}

// put reports whether the health of a device is another one.
func (d *Drivers) put(driver string, next driverHealth) (other bool) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.known[driver].Devices
	other = len(before) != len(next.Devices)
	for key, one := range next.Devices {
		was, known := before[key]
		if !known || was.at(now) != one.at(now) || was.Message != one.Message {
			other = true
		}
	}
	if d.known[driver] = next; len(next.Devices) == 0 {
		delete(d.known, driver)
	}
	d.dirty = d.dirty || other
	return other
}

// at returns the health at that time: what a driver said long ago does not count.
func (h deviceHealth) at(now time.Time) dra.Health {
	if h.Health == "" || now.After(h.ends()) {
		return dra.Unknown
	}
	return h.Health
}

func (h deviceHealth) ends() time.Time { return h.LastUpdated.Add(h.HealthCheckTimeout) }

// Of returns the health of a claim's device, with its driver's words.
func (d *Drivers) Of(device claim.Device) (health v1.ResourceHealthStatus, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := d.known[device.Driver].Devices[device.Pool+"/"+device.Name]
	now := h.at(time.Now())
	if now == dra.Unknown && h.Health != dra.Unknown {
		return v1.ResourceHealthStatusUnknown, ""
	}
	return v1.ResourceHealthStatus(now), h.Message
}

// Run writes the file, and tells when what drivers said does not count any more.
func (d *Drivers) Run(ctx context.Context) error {
	var wrong complaint.Complaint[string]
	for ctx.Err() == nil {
		if err := d.write(); wrong.Begins(complaint.Of(err)) {
			klog.FromContext(ctx).Error(err, "Health of resource claims' devices is not kept")
		}
		next := d.nextEnd(time.Now())
		select {
		case <-ctx.Done():
		case <-d.wake:
		case <-await.At(next):
			d.changed()
		}
	}
	return nil
}

// nextEnd returns when the next word of a driver ends to count; zero: none does.
func (d *Drivers) nextEnd(now time.Time) (next time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, driver := range d.known {
		for _, one := range driver.Devices {
			if end := one.ends().Add(time.Millisecond); end.After(now) {
				next = await.Earlier(next, end)
			}
		}
	}
	return next
}

func (d *Drivers) write() error {
	raw, err := d.unwritten()
	if raw == nil {
		return err
	}
	if err := files.Replace(d.path, raw); err != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.dirty = true
		return err
	}
	return nil
}

// unwritten returns what the file is to have; nil: what it has.
func (d *Drivers) unwritten() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.dirty {
		return nil, nil
	}
	d.dirty = false
	return json.Marshal(d.known)
}

// statuses returns the health of the devices of a container's claims, in the order of its spec, while
// they are prepared.
func (d *Drivers) statuses(claims allocation.Claims,
	cdi func(types.UID, claim.Device) (id string, prepared bool)) (out []v1.ResourceStatus) {
	for _, one := range claims {
		if one.Name == "" {
			continue // the status has no name for what stands for extended resources
		}
		s := v1.ResourceStatus{Name: v1.ResourceName("claim:" + one.Name)}
		if one.Request != "" {
			s.Name += v1.ResourceName("/" + one.Request)
		}
		names := map[string]int{}
		for _, device := range one.Devices {
			id, _ := cdi(one.UID, device)
			names[id]++
		}
		for _, device := range one.Devices {
			health, why := d.Of(device)
			id, prepared := cdi(one.UID, device)
			if !prepared {
				continue
			}
			if id == "" || names[id] > 1 { // the API server takes each id once
				id = device.Driver + "/" + device.Pool + "/" + device.Name
			}
			h := v1.ResourceHealth{Health: health, ResourceID: v1.ResourceID(id)}
			if why != "" {
				h.Message = &why
			}
			s.Resources = append(s.Resources, h)
		}
		if len(s.Resources) > 0 {
			out = append(out, s)
		}
	}
	return out
}
