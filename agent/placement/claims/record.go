package claims

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// Record holds what is known of a claim that pods of this node use, and what its drivers were told.
// It is durable before a driver is called, and never written to once others have it.
//
//	   PrepareSent, Held            WasPrepared
//	Unsent -----------> Preparing -----------------> Prepared
//	   ^                    |     <----------------     |
//	   |                    |           Lost            |
//	   |  WasUnprepared     v       UnprepareSent       v
//	   '---------------- Unpreparing <------------------'
//
// These are the stages of a driver. A claim whose last user has left, and whose drivers are all
// Unsent, has no record.
type Record struct {
	Claim
	// Users are sorted by UID. Of several that leave, one is left.
	Users []User `json:"users"`
	// Devices are the allocated ones; none: a kubelet recorded the claim.
	Devices []Allocated `json:"devices,omitempty"`
	Drivers []Driver    `json:"drivers"` // by name
}

// Claim names the claim of a record.
type Claim struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
}

// User is a pod that uses the claim.
type User struct {
	UID types.UID `json:"uid"`
	// Name is the pod's; "": a kubelet recorded it.
	Name string `json:"name,omitempty"`
	// Leaving: the pod was the claim's last user, and waits for it to be unprepared.
	Leaving bool `json:"leaving,omitempty"`
}

func byUID(a, b User) int { return strings.Compare(string(a.UID), string(b.UID)) }

func (u User) String() string {
	if u.Name == "" {
		return "the pod with UID " + string(u.UID)
	}
	return "pod " + u.Name
}

// Allocated is an allocated device, as claim.Device has it.
type Allocated struct {
	Request string `json:"request"`
	Driver  string `json:"driver"`
	Pool    string `json:"pool"`
	Device  string `json:"device"`
	ShareID string `json:"shareID,omitempty"`
	Admin   bool   `json:"admin,omitempty"`
	// Consumed is omitted where the claim has the whole device.
	Consumed claim.Amount `json:"consumed,omitzero"`
}

// Stage says how much a driver was told of a claim.
type Stage string

// The stages.
const (
	// StageUnsent: the driver was told nothing, or has unprepared the claim.
	StageUnsent Stage = ""
	// StagePreparing: a call to prepare may have reached the driver, and its answer is not known, or
	// counts no more: it was for another boot, or what it says is lost.
	StagePreparing Stage = "Preparing"
	// StagePrepared: the driver has prepared the claim.
	StagePrepared Stage = "Prepared"
	// StageUnpreparing: a call to unprepare may have reached the driver, and has not succeeded.
	StageUnpreparing Stage = "Unpreparing"
)

// Driver records what a driver was told, and answered.
type Driver struct {
	Name  string    `json:"name"`
	Stage Stage     `json:"stage,omitempty"`
	Since time.Time `json:"since"`
	// Devices is the driver's last answer. If the answer is lost, the devices have no CDI ids.
	Devices []dra.Device `json:"devices,omitempty"`
	Skips   claim.Skip   `json:"skips"`
}

// key identifies a record: drivers and the kubelet know one claim of a name.
func (c Claim) key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
}

func (r *Record) clone() *Record {
	next := *r
	next.Users, next.Drivers = slices.Clone(r.Users), slices.Clone(r.Drivers)
	return &next
}

func (r *Record) driver(name string) *Driver {
	for i := range r.Drivers {
		if r.Drivers[i].Name == name {
			return &r.Drivers[i]
		}
	}
	return nil
}

// active returns the users that have not left.
func (r *Record) active() (out []User) {
	for _, u := range r.Users {
		if !u.Leaving {
			out = append(out, u)
		}
	}
	return out
}

// has reports whether the pod uses the claim, and has not left it.
func (r *Record) has(uid types.UID) bool {
	return slices.ContainsFunc(r.active(), func(u User) bool { return u.UID == uid })
}

func (r *Record) inStage(s ...Stage) bool {
	return slices.ContainsFunc(r.Drivers, func(d Driver) bool { return slices.Contains(s, d.Stage) })
}

func (r *Record) unpreparing() bool { return r.inStage(StageUnpreparing) }

func (r *Record) prepared() bool { return !r.inStage(StageUnsent, StagePreparing, StageUnpreparing) }

// hasDevices reports whether it is known which devices the claim's users have.
func (r *Record) hasDevices() bool {
	return !slices.ContainsFunc(r.Drivers, func(d Driver) bool {
		return d.Stage != StagePrepared && (d.Stage != StagePreparing || len(d.Devices) == 0)
	})
}

// unprepared reports whether no pod uses the claim and no driver has anything of it.
func (r *Record) unprepared() bool {
	return len(r.active()) == 0 && !r.inStage(StagePreparing, StagePrepared, StageUnpreparing)
}

// agrees reports whether the claim is still allocated as it was recorded.
func (r *Record) agrees(u Use) bool {
	if len(r.Devices) > 0 {
		return slices.Equal(r.Devices, allocatedOf(u.Use))
	}
	var names []string
	for _, d := range r.Drivers {
		names = append(names, d.Name)
	}
	return slices.Equal(names, u.Drivers())
}

// ToPrepare returns the drivers that are to prepare the claim.
func (r *Record) ToPrepare() (out []string) {
	if len(r.active()) == 0 || r.unpreparing() {
		return nil
	}
	for _, d := range r.Drivers {
		if d.Stage != StagePrepared {
			out = append(out, d.Name)
		}
	}
	return out
}

// sparedBy returns the drivers that are not called when the pod leaves the claim as its last user.
func (r *Record) sparedBy(uid types.UID) (out []string) {
	if r == nil || !r.has(uid) || len(r.active()) > 1 {
		return nil
	}
	for _, d := range r.Drivers {
		if d.Skips.Unprepare && d.Stage != StageUnsent {
			out = append(out, d.Name)
		}
	}
	return out
}

// ToUnprepare returns the drivers that are to unprepare the claim: each one that a call to prepare
// may have reached, once the last user has left.
func (r *Record) ToUnprepare() (out []string) {
	if len(r.active()) > 0 {
		return nil
	}
	for _, d := range r.Drivers {
		if d.Stage != StageUnsent {
			out = append(out, d.Name)
		}
	}
	return out
}

func allocatedOf(u claim.Use) (out []Allocated) {
	for _, d := range u.Devices {
		out = append(out, Allocated{Request: d.Request, Driver: d.Driver, Pool: d.Pool,
			Device: d.Name, ShareID: d.ShareID, Admin: d.Admin, Consumed: d.Consumed})
	}
	return out
}

// use returns what the record says of a pod's use of the claim.
func (r *Record) use(ref claim.Ref) claim.Use {
	u := claim.Use{Pod: ref.Pod, Claim: dra.Claim(r.Claim)}
	for _, d := range r.Devices {
		u.Devices = append(u.Devices, claim.Device{Request: d.Request, Driver: d.Driver,
			Pool: d.Pool, Name: d.Device, ShareID: d.ShareID, Admin: d.Admin, Consumed: d.Consumed})
	}
	if len(r.Devices) > 0 {
		return u
	}
	for _, d := range r.Drivers { // a kubelet recorded the claim
		for _, device := range d.Devices {
			u.Devices = append(u.Devices, claim.Device{Driver: d.Name, Pool: device.Pool,
				Name: device.Name, ShareID: device.ShareID})
		}
	}
	return u
}
