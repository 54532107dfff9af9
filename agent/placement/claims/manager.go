package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
)

// Config configures a Manager. Get and Drivers are required.
type Config struct {
	// Dir is the agent's root, with FileName and KubeletFile.
	Dir    string
	BootID string
	// Booted is when the machine started; zero: what a kubelet prepared was in this boot.
	Booted time.Time
	// Get reads a claim at the API server.
	Get     func(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	Drivers Drivers
	// DriversChanged has a value when other drivers are usable than before.
	DriversChanged <-chan struct{}
	// CDIDirs are the directories in which the runtime looks for CDI specs; nil: it is believed to find
	// what drivers answered.
	CDIDirs []string
	// Place says where a device is; nil: nothing is known.
	Place func(driver, pool, device string) claim.Place
	Ends  Ends
	// OptionalCalls lets drivers do without calls (DRAOptionalNodeOperations).
	OptionalCalls bool
	// Groups lets pods use claims of the PodGroup that they are in (DRAWorkloadResourceClaims).
	Groups bool
	// Node returns the node's object; nil, or a result of nil: it is not known.
	Node     func() *v1.Node
	Registry metrics.KubeRegistry // nil: no metrics
}

// Ends hear what happens. None of them may block, and each may be nil.
type Ends struct {
	// Changed: the claims that a waiting pod lacks are others, or its drivers.
	Changed func()
	// Unprepared: a pod held claims, and holds none any more.
	Unprepared func(types.UID)
	// Tell records an event of an object.
	Tell func(object runtime.Object, eventType, reason, message string)
}

// Drivers calls the drivers of this node; *dra.Drivers does. A call has a deadline of its own.
type Drivers interface {
	Usable(driver string) bool
	Prepare(ctx context.Context, driver string, claims []dra.Claim) (
		map[types.UID]dra.Answer, error)
	Unprepare(ctx context.Context, driver string, claims []dra.Claim) (map[types.UID]error, error)
}

// Manager has claims prepared and unprepared.
type Manager struct {
	cfg     Config
	follow  *follower
	book    *book
	calls   *caller
	pods    *releases
	metrics *meters
	// held is closed once it is recorded what running pods use: no driver unprepares anything before.
	held chan struct{}
	// recovered says what the records were completed from when they were opened.
	recovered string
	cdi       *specs
}

// New opens the records. An error that is files.ErrUnusable says that a file was moved aside: the
// manager can be used. Any other error comes without one.
func New(cfg Config) (*Manager, error) {
	if cfg.Ends.Changed == nil {
		cfg.Ends.Changed = func() {}
	}
	if cfg.Node == nil {
		cfg.Node = func() *v1.Node { return nil }
	}
	b, err := openBook(cfg.Dir, cfg.BootID)
	if b == nil {
		return nil, err
	}
	recovered, aligned := b.align(cfg.Dir, cfg.Booted)
	if aligned != nil && !isUnusable(aligned) {
		return nil, aligned
	}
	m := &Manager{cfg: cfg, book: b, pods: newReleases(), held: make(chan struct{}),
		recovered: recoveredFrom(recovered, err, aligned), cdi: newSpecs(cfg.CDIDirs)}
	err = errors.Join(err, aligned)
	m.calls = &caller{drivers: cfg.Drivers, book: b, flights: newFlights(), news: m.pods.tell}
	b.unprepared = cfg.Ends.Unprepared
	m.follow = &follower{get: cfg.Get, optional: cfg.OptionalCalls, groups: cfg.Groups, node: cfg.Node,
		changed: cfg.Ends.Changed, pods: map[types.UID]*reading{}}
	var failed error
	if m.metrics, failed = newMeters(cfg.Registry, b.records); failed != nil {
		return nil, failed
	}
	return m, err
}

// recoveredFrom says what became of the claims when ours or the kubelet's file was unusable, or ours
// had lost some that the kubelet's has; "": nothing happened.
func recoveredFrom(claims int, ours, kubelets error) string {
	switch {
	case claims > 0:
		return fmt.Sprintf("%d resource claims that %s lacked are taken over from %s", claims,
			FileName, KubeletFile)
	case ours != nil:
		return "claims of running pods are recorded as the API server has them, and prepared again " +
			"before a container needs them"
	case kubelets != nil:
		return KubeletFile + " is written anew from " + FileName
	default:
		return ""
	}
}

// Recovered says what became of claims whose records were lost when New opened them; "": nothing was.
func (m *Manager) Recovered() string { return m.recovered }

// Begin follows the claims of a pod that waits, until End. Another version of the pod may follow.
func (m *Manager) Begin(pod *v1.Pod) { m.follow.begin(pod) }

// End ends Begin.
func (m *Manager) End(uid types.UID) { m.follow.end(uid) }

// Look waits until the API server has answered once about the claims of a pod that is followed.
func (m *Manager) Look(ctx context.Context, pod *v1.Pod) { m.follow.look(ctx, pod.UID) }

// Uses returns the pod's claims, and what keeps the pod from using them. Of a pod whose claims were
// prepared nothing is lacking, whatever its drivers do. It does not block.
func (m *Manager) Uses(pod *v1.Pod) ([]claim.Use, claim.Lack) {
	if !claim.Any(pod) {
		return nil, claim.Lack{}
	}
	if uses, ok := m.book.recorded(pod); ok {
		return m.cfg.placed(uses), claim.Lack{}
	}
	now, followed := m.follow.known(pod.UID)
	switch {
	case !followed:
		return nil, claim.Lack{Reason: claim.ReasonWaitClaim,
			Why: "the pod's resource claims were not read yet"}
	case !now.good:
		return nil, claim.Lack{Reason: claim.ReasonWaitClaim, Why: now.err.Error()}
	}
	var uses []claim.Use
	for _, u := range now.uses {
		uses = append(uses, u.Use)
	}
	return m.cfg.placed(uses), lackOf(m.cfg.Drivers, now.uses)
}

// lackOf names the first driver that cannot be called.
func lackOf(drivers Drivers, uses []Use) claim.Lack {
	for _, u := range uses {
		for _, driver := range u.Drivers() {
			if !u.Skips[driver].Prepare && !drivers.Usable(driver) {
				return claim.Lack{Reason: claim.ReasonWaitDriver, Why: fmt.Sprintf(
					"%v, and ResourceClaim %s has devices of it", unregistered{driver}, u.Name)}
			}
		}
	}
	return claim.Lack{}
}

// recorded returns the uses of a pod whose claims are all prepared.
func (b *book) recorded(pod *v1.Pod) ([]claim.Use, bool) {
	refs, err := claim.Refs(pod)
	if err != nil {
		return nil, false
	}
	var out []claim.Use
	for _, ref := range refs {
		r := b.get(types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name})
		if r == nil || !r.has(pod.UID) || !r.prepared() {
			return nil, false
		}
		out = append(out, r.use(ref))
	}
	return out, true
}

// placed adds where the devices are.
func (c Config) placed(uses []claim.Use) []claim.Use {
	if c.Place == nil {
		return uses
	}
	for i := range uses {
		devices := make([]claim.Device, len(uses[i].Devices))
		for j, d := range uses[i].Devices {
			d.Place = c.Place(d.Driver, d.Pool, d.Name)
			devices[j] = d
		}
		uses[i].Devices = devices
	}
	return uses
}

// Allocated returns the devices of the driver that a recorded claim has.
func (m *Manager) Allocated(c dra.Claim, driver string) (out []dra.Device) {
	r := m.book.get(types.NamespacedName{Namespace: c.Namespace, Name: c.Name})
	if r == nil || r.UID != c.UID {
		return nil
	}
	for _, d := range r.Devices {
		if d.Driver == driver {
			out = append(out, dra.Device{Requests: []string{d.Request}, Pool: d.Pool, Name: d.Device,
				ShareID: d.ShareID})
		}
	}
	return out
}

// Prepared is a claim that a pod uses, with the devices that its drivers prepared.
type Prepared struct {
	dra.Claim
	Devices []Device
}

// Device is a prepared device.
type Device struct {
	Driver string
	dra.Device
}

// Prepared returns the claims of a pod with their devices, by name; of a claim that is not prepared,
// none. A pod that has left keeps them until its drivers have unprepared them.
func (m *Manager) Prepared(uid types.UID) (out []Prepared) {
	for _, r := range m.book.of(uid) {
		p := Prepared{Claim: dra.Claim(r.Claim)}
		if r.hasDevices() || !r.has(uid) {
			p.Devices = r.devices()
		}
		out = append(out, p)
	}
	return out
}

func (r *Record) devices() (out []Device) {
	for _, d := range r.Drivers {
		for _, device := range d.Devices {
			out = append(out, Device{d.Name, device})
		}
	}
	return out
}

// Held says why the pod's claims are not yet unprepared; nil: it holds none.
func (m *Manager) Held(uid types.UID) error {
	held := m.book.of(uid)
	for _, r := range held {
		for _, d := range r.Drivers {
			if p := m.calls.flights.problem(called{r.key(), d.Name}); p.Err != nil &&
				len(r.active()) == 0 {
				return p.Err
			}
		}
	}
	if len(held) > 0 {
		return fmt.Errorf("ResourceClaim %s is not unprepared yet", held[0].Name)
	}
	if m.pods.preparing(uid) {
		return fmt.Errorf("the pod's resource claims are being prepared")
	}
	return nil
}
