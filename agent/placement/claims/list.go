package claims

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/deviceplugin/failure"
)

// Row is a claim of which this node's pods or drivers have something.
type Row struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Users     []UserRow `json:"users"`
	// Drivers are the claim's, by name.
	Drivers []DriverRow `json:"drivers"`
}

// UserRow is a pod that uses a claim.
type UserRow struct {
	// Pod is its name; "": only its UID is known.
	Pod string    `json:"pod,omitempty"`
	UID types.UID `json:"uid"`
	// Ended: nothing of the pod runs, and it waits for the claim to be unprepared.
	Ended bool `json:"ended,omitempty"`
}

// DriverRow shows what a driver has of a claim.
type DriverRow struct {
	Driver string `json:"driver"`
	// State is NotCalled, Preparing, Prepared or Unpreparing.
	State string    `json:"state"`
	Since time.Time `json:"since,omitzero"`
	// Registered: a plugin of the driver can be called.
	Registered bool `json:"registered"`
	// Devices are the prepared ones, as pool/device.
	Devices []string `json:"devices,omitempty"`
	// LastError is why the last call failed, or was not made; "": it succeeded.
	LastError string `json:"lastError,omitempty"`
	// Failures are the unhealthy devices, by pod and container.
	Failures []Failure `json:"failures,omitempty"`
}

// Failure says since when a device of a claim is unhealthy, and what was or will be done about it, for a
// container that has it.
type Failure struct {
	// Device is pool/device.
	Device    string `json:"device"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	failure.Outlook
}

// addFailures adds to rows what is known of failures.
func addFailures(rows []Row, known map[failure.Device]failure.Outlook) {
	by := map[types.UID][]failure.Device{}
	for d := range known {
		if d.Driver != "" {
			by[d.Pod] = append(by[d.Pod], d)
		}
	}
	for _, r := range rows {
		for _, u := range r.Users {
			for _, d := range by[u.UID] {
				r.addFailure(u, d, known[d])
			}
		}
	}
}

func (r Row) addFailure(u UserRow, d failure.Device, o failure.Outlook) {
	name := d.Pool + "/" + d.ID
	for i := range r.Drivers {
		if to := &r.Drivers[i]; to.Driver == d.Driver && slices.Contains(to.Devices, name) {
			to.Failures = append(to.Failures, Failure{name, u.Pod, d.Container, o})
			slices.SortFunc(to.Failures, func(a, b Failure) int {
				return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Pod, b.Pod),
					cmp.Compare(a.Container, b.Container))
			})
		}
	}
}

// notCalled is the state of a driver in StageUnsent.
const notCalled = "NotCalled"

// List returns the claims by namespace and name.
func (m *Manager) List() []Row {
	out := []Row{}
	for _, r := range m.book.records().list() {
		out = append(out, m.calls.row(r))
	}
	return out
}

func (by *caller) row(r *Record) Row {
	row := Row{Namespace: r.Namespace, Name: r.Name, UID: r.UID, Users: []UserRow{}, Drivers: []DriverRow{}}
	for _, u := range r.Users {
		row.Users = append(row.Users, UserRow{u.Name, u.UID, u.Leaving})
	}
	for _, d := range r.Drivers {
		one := DriverRow{Driver: d.Name, State: string(d.Stage), Since: d.Since,
			Registered: by.drivers.Usable(d.Name)}
		if d.Stage == StageUnsent {
			one.State = notCalled
		}
		for _, device := range d.Devices {
			one.Devices = append(one.Devices, device.Pool+"/"+device.Name)
		}
		if p := by.flights.problem(called{r.key(), d.Name}); p.Err != nil {
			one.LastError = p.Err.Error()
		}
		row.Drivers = append(row.Drivers, one)
	}
	return row
}

// reasonForgotten is the reason of the event about a claim that was forgotten.
const reasonForgotten = "ResourceClaimForgotten"

// ErrUnknown: there is no claim of that name.
var ErrUnknown = errors.New("no pod of this node uses such a ResourceClaim, and no driver has " +
	"anything of it; numalet claim list has those")

// Forget drops what is recorded of a claim that only pods that ended use, so that they need not wait
// for its drivers, and tells of it. It returns what was forgotten. The driver keeps what it has
// prepared.
func (m *Manager) Forget(namespace, name string) (Row, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	var was *Record
	err := m.book.apply(func(d *draft) error {
		if was = d.get(key); was == nil {
			return fmt.Errorf("%s: %w", key, ErrUnknown)
		}
		for _, driver := range was.Drivers {
			if m.calls.flights.busy(called{key, driver.Name}) {
				return fmt.Errorf("a call to DRA driver %s is under way; try again when it has ended, "+
					"which takes 45 s at most", driver.Name)
			}
		}
		return d.step(key, Event{Kind: Forgotten})
	})
	if err != nil {
		return Row{}, err
	}
	row := m.calls.row(was)
	m.calls.flights.keep(m.book.records())
	m.pods.tell()
	m.cfg.Ends.tellForgotten(was)
	return row, nil
}

// tellForgotten makes events of the claim and of its users.
func (e Ends) tellForgotten(r *Record) {
	if e.Tell == nil {
		return
	}
	left := ""
	for _, d := range r.Drivers {
		if d.Stage != StageUnsent {
			left += fmt.Sprintf("; DRA driver %s may still have its devices prepared", d.Name)
		}
	}
	tell := func(object runtime.Object) {
		e.Tell(object, v1.EventTypeWarning, reasonForgotten, fmt.Sprintf(
			"ResourceClaim %s is not unprepared on this node: an administrator had it forgotten%s",
			r.Name, left))
	}
	tell(&v1.ObjectReference{APIVersion: resourcev1.SchemeGroupVersion.String(),
		Kind: "ResourceClaim", Namespace: r.Namespace, Name: r.Name, UID: r.UID})
	for _, u := range r.Users {
		if u.Name != "" {
			tell(&v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: r.Namespace,
				Name: u.Name, UID: u.UID})
		}
	}
}
