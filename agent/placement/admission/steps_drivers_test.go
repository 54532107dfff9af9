package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/claim"
	"github.com/numalet/numalet/topology"
)

// stepDrivers are the drivers of resource claims. Driver n hands out the hardware that the plugin of
// stepResources[n+1] hands out too.
var stepDrivers = [...]string{"gpu.example.com", "nic.example.com"}

// driverDevices is how many devices a driver has.
const driverDevices = 6

// stepAddress is the PCI address of a device, by whichever way it is handed out.
func stepAddress(driver, device int) string { return fmt.Sprintf("0000:%x%x:00.0", driver+1, device) }

// deviceOf is a device of a driver.
type deviceOf struct{ driver, device int }

// stepClaim is a ResourceClaim at the API server.
type stepClaim struct {
	name      string
	uid       types.UID
	devices   []deviceOf // as the scheduler allocated them
	allocated bool
	reserved  sets.Set[types.UID]
	// vanished: the API server has it no more, though pods may use it.
	vanished bool
}

// driverMood is how a driver answers.
type driverMood int

const (
	well    driverMood = iota
	delayed            // after some seconds
	hanging
	refusing
)

// stepClaims are the claims of the API server and the drivers of the node. Drivers remember what they
// prepared, also while they do not serve.
type stepClaims struct {
	mu       sync.Mutex // guards all fields
	claims   []*stepClaim
	made     int
	silent   bool // the API server does not answer about claims
	away     [len(stepDrivers)]bool
	moods    [len(stepDrivers)]driverMood
	changed  [len(stepDrivers)]time.Time           // when the mood did; calls from before go on
	prepared [len(stepDrivers)]map[types.UID][]int // devices by claim
	// running has the claims that pods run with, active the pods that may use claims, if all are known.
	running sets.Set[types.UID]
	active  sets.Set[types.UID]
	known   bool
	wrong   []string // what is found wrong by calls
	seen    map[string]int
}

func newStepClaims() *stepClaims {
	c := &stepClaims{running: sets.New[types.UID](), seen: map[string]int{}}
	for i := range c.prepared {
		c.prepared[i] = map[types.UID][]int{}
	}
	return c
}

func (c *stepClaims) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// find returns the claim of that name that the API server has, or nil.
func (c *stepClaims) find(name string) *stepClaim {
	for _, one := range c.claims {
		if one.name == name && !one.vanished {
			return one
		}
	}
	return nil
}

func (c *stepClaims) byUID(uid types.UID) *stepClaim {
	for _, one := range c.claims {
		if one.uid == uid {
			return one
		}
	}
	return nil
}

// make makes a claim of that name.
func (c *stepClaims) make(name string) *stepClaim {
	c.made++
	one := &stepClaim{name: name, uid: types.UID(fmt.Sprint(name, "-", c.made)),
		reserved: sets.New[types.UID]()}
	c.claims = append(c.claims, one)
	return one
}

// allocate is the scheduler: it gives the claim devices that no other claim has. It knows nothing of
// device plugins.
func (c *stepClaims) allocate(r *rand.Rand, one *stepClaim) {
	taken := map[deviceOf]bool{}
	for _, o := range c.claims {
		for _, d := range o.devices {
			taken[d] = true
		}
	}
	var free []deviceOf
	for _, at := range r.Perm(len(stepDrivers) * driverDevices) {
		if d := (deviceOf{at / driverDevices, at % driverDevices}); !taken[d] {
			free = append(free, d)
		}
	}
	if n := 1 + r.IntN(2); len(free) >= n {
		one.devices, one.allocated = free[:n], true
	}
}

// get is the API server's answer about a claim.
func (c *stepClaims) get(_ context.Context, namespace, name string) (*resourcev1.ResourceClaim, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent {
		return nil, errors.New("no answer")
	}
	one := c.find(name)
	if one == nil {
		return nil, apierrors.NewNotFound(resourcev1.Resource("resourceclaims"), name)
	}
	out := &resourcev1.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: one.uid},
	}
	for _, uid := range sets.List(one.reserved) {
		out.Status.ReservedFor = append(out.Status.ReservedFor,
			resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: string(uid), UID: uid})
	}
	if one.allocated {
		out.Status.Allocation = &resourcev1.AllocationResult{}
		for _, d := range one.devices {
			out.Status.Allocation.Devices.Results = append(out.Status.Allocation.Devices.Results,
				resourcev1.DeviceRequestAllocationResult{Request: "r", Pool: "node",
					Driver: stepDrivers[d.driver], Device: fmt.Sprint("dev-", d.device)})
		}
	}
	return out, nil
}

// stepPlace returns where a device is by its ResourceSlice, on a machine with so many NUMA nodes.
func stepPlace(driver, device string, nodes int) claim.Place {
	var n int
	if _, err := fmt.Sscanf(device, "dev-%d", &n); err != nil {
		return claim.Place{}
	}
	at := claim.Place{PCI: stepAddress(slices.Index(stepDrivers[:], driver), n)}
	if n%3 > 0 {
		at.Nodes = topology.NewNodeSet(topology.NodeID(n % nodes))
	}
	return at
}

// pods says which pods may use claims.
func (c *stepClaims) pods() (claims.Pods, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return claims.Pods{Active: c.active}, c.known
}

// Usable implements claims.Drivers.
func (c *stepClaims) Usable(driver string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.away[slices.Index(stepDrivers[:], driver)]
}

// Prepare implements claims.Drivers.
func (c *stepClaims) Prepare(ctx context.Context, driver string, all []dra.Claim) (
	map[types.UID]dra.Answer, error) {
	at, out := slices.Index(stepDrivers[:], driver), map[types.UID]dra.Answer{}
	err := c.call(ctx, at, all, func(one dra.Claim) {
		answer := dra.Answer{}
		for _, i := range c.prepare(at, one) {
			answer.Devices = append(answer.Devices, dra.Device{Requests: []string{"r"}, Pool: "node",
				Name: fmt.Sprint("dev-", i), CDI: []string{fmt.Sprintf("%s/dev=%d", driver, i)}})
		}
		out[one.UID] = answer
	})
	return out, err
}

// prepare prepares the devices of a claim that the driver has.
func (c *stepClaims) prepare(at int, one dra.Claim) (devices []int) {
	known := c.byUID(one.UID)
	if known == nil {
		c.wrong = append(c.wrong, fmt.Sprintf("%s is to prepare %s, which is nobody's", stepDrivers[at], one.UID))
		return nil
	}
	for _, d := range known.devices {
		if d.driver == at {
			devices = append(devices, d.device)
		}
	}
	for uid, has := range c.prepared[at] {
		for _, i := range devices {
			if uid != one.UID && slices.Contains(has, i) {
				c.wrong = append(c.wrong, fmt.Sprintf("%s is to prepare dev-%d for %s, and %s has it",
					stepDrivers[at], i, one.UID, uid))
			}
		}
	}
	c.prepared[at][one.UID] = devices
	c.seen["claim prepared"]++
	return devices
}

// Unprepare implements claims.Drivers.
func (c *stepClaims) Unprepare(ctx context.Context, driver string, all []dra.Claim) (
	map[types.UID]error, error) {
	at, out := slices.Index(stepDrivers[:], driver), map[types.UID]error{}
	err := c.call(ctx, at, all, func(one dra.Claim) {
		if c.running.Has(one.UID) {
			c.wrong = append(c.wrong, fmt.Sprintf("%s is to unprepare %s, with which pods run", driver, one.UID))
		}
		delete(c.prepared[at], one.UID)
		c.seen["claim unprepared"]++
		out[one.UID] = nil
	})
	return out, err
}

// driverTime is how long a call may take.
const driverTime = 45 * time.Second

// call has its effect when it begins or when it ends, whether or not the caller hears of that.
func (c *stepClaims) call(ctx context.Context, at int, all []dra.Claim, effect func(dra.Claim)) error {
	c.mu.Lock()
	mood, away := c.moods[at], c.away[at]
	c.mu.Unlock()
	early := all[0].UID[len(all[0].UID)-1]%2 == 1 // by chance, and always the same
	act := func() {
		c.set(func() {
			for _, one := range all {
				effect(one)
			}
		})
	}
	switch {
	case away:
		return fmt.Errorf("driver %s: %w", stepDrivers[at], dra.ErrNotRegistered)
	case mood == refusing:
		return errors.New("out of order")
	case mood == well:
		act()
		return nil
	}
	if early {
		act()
	}
	takes := driverTime
	if mood == delayed {
		takes = 7 * time.Second
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	if mood == hanging {
		return context.DeadlineExceeded
	}
	if !early {
		act()
	}
	c.set(func() { c.seen["driver answered late"]++ })
	return nil
}

// forget has the machine boot: some drivers keep what they prepared.
func (c *stepClaims) forget(r *rand.Rand) {
	for at := range c.prepared {
		if r.IntN(2) == 0 {
			c.set(func() { clear(c.prepared[at]) })
		}
	}
}

// found takes what calls found wrong.
func (c *stepClaims) found() (wrong []string) {
	c.set(func() { wrong, c.wrong = c.wrong, nil })
	return wrong
}

// counts returns how often each thing came about.
func (c *stepClaims) counts() (out map[string]int) {
	c.set(func() { out = maps.Clone(c.seen) })
	return out
}
