package claims

import (
	"fmt"
	"slices"
	"time"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// EventKind is a kind of Event.
type EventKind string

// The events of a claim.
const (
	// Used: User uses the claim of Use from now on. It fails if the claim is on its way out.
	Used EventKind = "Used"
	// Held: as Used, for a pod that runs and of which no record said so: drivers have prepared the
	// claim, and their answers are lost.
	Held EventKind = "Held"
	// Left: the pod of User needs the claim no longer.
	Left EventKind = "Left"
	// PrepareSent: a call to prepare is about to be sent to Driver.
	PrepareSent EventKind = "PrepareSent"
	// WasPrepared: Driver has prepared Devices.
	WasPrepared EventKind = "WasPrepared"
	// UnprepareSent: a call to unprepare is about to be sent to Driver.
	UnprepareSent EventKind = "UnprepareSent"
	// WasUnprepared: Driver has unprepared the claim.
	WasUnprepared EventKind = "WasUnprepared"
	// NotSent: the call that was about to be sent to Driver was not; it is in Stage again.
	NotSent EventKind = "NotSent"
	// Lost: what Driver prepared is not where the runtime looks for it.
	Lost EventKind = "Lost"
	// Rebooted: the machine has started anew, and drivers may have forgotten what they prepared.
	Rebooted EventKind = "Rebooted"
	// Forgotten: an administrator wants nothing to be called for the claim. It fails while pods use
	// it.
	Forgotten EventKind = "Forgotten"
)

// Event is something that happens to a claim.
type Event struct {
	Kind EventKind
	User User // of Used, Held and Left
	Use  Use  // of Used and Held
	// Driver, Devices and Stage belong to the events of calls.
	Driver  string
	Devices []dra.Device
	Stage   Stage
	At      time.Time
}

// Use is the claim that a pod uses, with what drivers need not be told.
type Use struct {
	claim.Use
	// Skips are drivers that are not called to prepare the claim, or to unprepare it.
	Skips claim.Skips
}

// Step returns the record of a claim after an event; a nil record: nothing is known of the claim, and
// nothing is owed. An event that comes too late changes nothing. An error says why a pod cannot use
// the claim, or why the claim cannot be forgotten; the record is then as it was.
func Step(r *Record, e Event) (*Record, error) {
	uses := e.Kind == Used || e.Kind == Held
	if r == nil && !uses {
		return nil, nil
	}
	if uses {
		return use(r, e)
	}
	next := r.clone()
	switch e.Kind {
	case Left:
		next.leave(e)
	case PrepareSent, WasPrepared, UnprepareSent, WasUnprepared, NotSent, Lost:
		if d := next.driver(e.Driver); d != nil {
			d.take(e)
		}
	case Rebooted:
		for i := range next.Drivers {
			next.Drivers[i].reboot(e.At)
		}
	case Forgotten:
		if active := r.active(); len(active) > 0 {
			return r, fmt.Errorf("ResourceClaim %s/%s is used by %s; delete the pod first",
				r.Namespace, r.Name, active[0])
		}
		return nil, nil
	case Used, Held:
	default:
		panic(fmt.Sprintf("claims: event %q", e.Kind))
	}
	if next.unprepared() {
		return nil, nil
	}
	return next, nil
}

// use adds a user, with the kubelet's words if that cannot be.
func use(r *Record, e Event) (*Record, error) {
	u := e.Use
	switch {
	case r == nil:
		r = newRecord(u, e.At)
	case r.UID != u.UID:
		return r, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists "+
			"(previous pod force-deleted?!)", r.Name, r.UID)
	case r.unpreparing() || !r.agrees(u):
		return r, fmt.Errorf("ResourceClaim %s is being unprepared", r.Name)
	default:
		r = r.clone()
	}
	if len(u.Devices) > 0 {
		r.Devices = allocatedOf(u.Use)
	}
	// Users that left before need not wait for the claim any more: it stays for the new user.
	r.Users = slices.DeleteFunc(r.Users, func(of User) bool {
		return of.Leaving || of.UID == e.User.UID
	})
	r.Users = append(r.Users, User{UID: e.User.UID, Name: e.User.Name})
	slices.SortFunc(r.Users, byUID)
	for i := range r.Drivers {
		d := &r.Drivers[i]
		switch {
		case d.Stage != StageUnsent:
		case d.Skips.Prepare:
			d.enter(StagePrepared, e.At)
		case e.Kind == Held:
			d.enter(StagePreparing, e.At)
			d.Devices = u.allocated(d.Name)
		}
	}
	return r, nil
}

// allocated returns the devices that a driver prepares, without their CDI ids.
func (u Use) allocated(driver string) (out []dra.Device) {
	for _, d := range u.Devices {
		if d.Driver == driver {
			out = append(out, dra.Device{Requests: []string{d.Request}, Pool: d.Pool, Name: d.Name,
				ShareID: d.ShareID})
		}
	}
	return out
}

func newRecord(u Use, at time.Time) *Record {
	r := &Record{Claim: Claim(u.Claim)}
	for _, name := range u.Drivers() {
		r.Drivers = append(r.Drivers, Driver{Name: name, Since: at, Skips: u.Skips[name]})
	}
	return r
}

// leave drops a user. The last one stays until the claim is unprepared: it has to wait for that.
func (r *Record) leave(e Event) {
	i := slices.IndexFunc(r.Users, func(u User) bool { return u.UID == e.User.UID })
	if i < 0 || r.Users[i].Leaving {
		return
	}
	if len(r.active()) > 1 {
		r.Users = slices.Delete(r.Users, i, i+1)
		return
	}
	r.Users[i].Leaving = true
	for i := range r.Drivers {
		if d := &r.Drivers[i]; d.Skips.Unprepare {
			d.enter(StageUnsent, e.At)
			d.Devices = nil
		}
	}
}

// take changes a driver's stage by an event of a call. A stage that the call did not start from
// stays.
func (d *Driver) take(e Event) {
	switch {
	case e.Kind == PrepareSent && (d.Stage == StageUnsent || d.Stage == StagePreparing):
		d.enter(StagePreparing, e.At)
	case e.Kind == WasPrepared && d.Stage == StagePreparing:
		d.enter(StagePrepared, e.At)
		d.Devices = e.Devices
	case e.Kind == Lost && d.Stage == StagePrepared && !d.Skips.Prepare:
		d.enter(StagePreparing, e.At)
	case e.Kind == UnprepareSent && d.Stage != StageUnsent:
		d.enter(StageUnpreparing, e.At)
	case e.Kind == WasUnprepared && d.Stage == StageUnpreparing:
		d.enter(StageUnsent, e.At)
		d.Devices = nil
	case e.Kind == NotSent && (d.Stage == StageUnpreparing ||
		d.Stage == StagePreparing && e.Stage != StagePrepared):
		d.enter(e.Stage, e.At)
	}
}

func (d *Driver) reboot(at time.Time) {
	if (d.Stage == StagePrepared || d.Stage == StagePreparing) && !d.Skips.Prepare {
		d.enter(StagePreparing, at)
		d.Devices = nil
	}
}

func (d *Driver) enter(s Stage, at time.Time) {
	if d.Stage != s {
		d.Stage, d.Since = s, at
	}
}
