package released

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/internal/await"
)

// Plugins are the device plugins.
type Plugins interface {
	Inventory() devicemanager.Inventory
	Released(ctx context.Context, resource string, ids []string, by holder.Holder) error
}

// Store has what plugins have to be told.
type Store interface {
	State() allocation.State
	Commit(ctx context.Context, changes ...allocation.Change) error
}

// Config has what a Notifier needs.
type Config struct {
	Store   Store
	Plugins Plugins
	// Changed has a value when the state or the inventory has changed.
	Changed <-chan struct{}
	// Reassignable is called when devices can be assigned again. It must not block.
	Reassignable func()
	// Tell records an event of the node. It must not block.
	Tell func(eventType, reason, message string)
}

// A plugin that answers with an error is called again after pause. After patience its devices can
// be assigned again all the same. Time during which the plugin is disconnected does not count: it
// is not called then, and no pod can get its devices.
const (
	pause    = time.Second
	patience = 30 * time.Second
)

// Notifier tells plugins which devices were released.
type Notifier struct {
	cfg  Config
	done chan done
	work sync.WaitGroup

	// Owned by Run.
	busy sets.Set[string]     // resources whose plugins are being called
	due  map[string]time.Time // when a resource's plugin is called again
	// from holds, for each pending release, when the plugin was first called, plus the time for
	// which it was disconnected since.
	from map[types.UID]time.Time
	away map[string]time.Time // since when a resource's plugin is disconnected
}

// done is the result of calling a plugin: an answer for each release, nil for success.
type done struct {
	resource string
	pending  []allocation.PendingRelease
	answers  []error
}

// New returns a notifier. It does nothing before Run.
func New(c Config) *Notifier {
	return &Notifier{
		cfg: c, done: make(chan done), busy: sets.New[string](), due: map[string]time.Time{},
		from: map[types.UID]time.Time{}, away: map[string]time.Time{},
	}
}

// Run calls plugins until ctx ends. A plugin that does not answer delays no other one.
func (n *Notifier) Run(ctx context.Context) error {
	defer n.work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.cfg.Changed:
		case d := <-n.done:
			n.busy.Delete(d.resource)
			n.answered(ctx, d)
		case <-timer.C:
		}
		timer.Reset(n.pass(ctx))
	}
}

// pass starts the calls to connected plugins, and returns when to look again.
func (n *Notifier) pass(ctx context.Context) (next time.Duration) {
	next = time.Hour
	state := n.cfg.Store.State()
	if len(state.PendingReleases) == 0 {
		return next
	}
	inventory, held := n.cfg.Plugins.Inventory(), allocation.HoldingsOf(state.List()...).Devices()
	var done []allocation.PendingRelease
	for resource, pending := range byResource(state.PendingReleases) {
		if n.busy.Has(resource) {
			continue
		}
		var left []allocation.PendingRelease
		for _, o := range pending {
			// A running pod may turn out to hold a device that was given back.
			ids := sets.New(o.IDs...)
			theirs := held[resource].Intersection(ids)
			done = append(done, part(o, theirs)...)
			left = append(left, part(o, ids.Difference(theirs))...)
		}
		n.follow(resource, inventory.Resources[resource].Connected, pending)
		wait := time.Until(n.due[resource])
		switch r := inventory.Resources[resource]; {
		case !r.Connected || len(left) == 0:
		case r.Options.Released == devicemanager.ReleasedUnwanted:
			done = append(done, left...)
		case wait > 0:
			next = min(next, wait)
		default:
			n.notify(ctx, resource, left)
		}
	}
	if !n.drop(ctx, done) {
		next = min(next, pause)
	}
	return next
}

// follow notes whether a plugin is connected, and leaves out the time for which it was not.
func (n *Notifier) follow(resource string, connected bool, pending []allocation.PendingRelease) {
	since, away := n.away[resource]
	switch {
	case !connected && !away:
		n.away[resource] = time.Now()
	case connected && away:
		delete(n.away, resource)
		for _, o := range pending {
			if from, tried := n.from[o.Entry()]; tried {
				n.from[o.Entry()] = from.Add(time.Since(since))
			}
		}
	}
}

// notify starts a goroutine that calls a plugin.
func (n *Notifier) notify(ctx context.Context, resource string, pending []allocation.PendingRelease) {
	n.busy.Insert(resource)
	for _, o := range pending {
		if _, known := n.from[o.Entry()]; !known {
			n.from[o.Entry()] = time.Now()
		}
	}
	n.work.Go(func() {
		d := done{resource: resource}
		for _, o := range pending {
			err := n.cfg.Plugins.Released(ctx, resource, o.IDs, holder.Holder{
				Namespace: o.Namespace, Pod: o.Name, UID: string(o.UID),
			})
			d.pending, d.answers = append(d.pending, o), append(d.answers, err)
			if ctx.Err() != nil || !n.cfg.Plugins.Inventory().Resources[resource].Connected {
				break
			}
		}
		await.Send(ctx, n.done, d)
	})
}

// answered drops what the plugin has confirmed, and what it has had its time for.
func (n *Notifier) answered(ctx context.Context, d done) {
	now := time.Now()
	var done []allocation.PendingRelease
	var late []int // of those
	for i, o := range d.pending {
		err := d.answers[i]
		switch {
		case err == nil:
		case now.Sub(n.from[o.Entry()]) >= patience:
			late = append(late, i)
		default:
			klog.FromContext(ctx).V(2).Info("A device plugin did not confirm released devices and "+
				"is called again", "resource", o.Resource, "devices", devicemanager.Few(o.IDs),
				"after", pause, "err", err)
			n.due[d.resource] = now.Add(pause)
			continue
		}
		done = append(done, o)
	}
	if !n.drop(ctx, done) {
		n.due[d.resource] = now.Add(pause) // it is called once more
		return
	}
	for _, i := range late {
		n.gaveUp(ctx, d.pending[i], d.answers[i])
	}
}

// reasonUnanswered is the reason of the event about devices that are assigned again although their
// plugin never confirmed the release. The kubelet has none.
const reasonUnanswered = "DeviceReleaseUnanswered"

// gaveUp reports devices that are assigned again although their plugin has not confirmed the
// release.
func (n *Notifier) gaveUp(ctx context.Context, o allocation.PendingRelease, why error) {
	klog.FromContext(ctx).Error(why, "Device plugin did not confirm that devices are released; "+
		"they are assigned again all the same", "resource", o.Resource,
		"devices", devicemanager.Few(o.IDs), "pod", klog.KRef(o.Namespace, o.Name))
	n.cfg.Tell(v1.EventTypeWarning, reasonUnanswered, fmt.Sprintf(
		"Devices %s of %s, which pod %s/%s had, are given out again though their device "+
			"plugin did not answer that it knows that they were released: %v",
		devicemanager.Few(o.IDs), o.Resource, o.Namespace, o.Name, why))
}

// drop removes from the state what plugins need not be told any more: durable first. If that
// fails, the caller tries again.
func (n *Notifier) drop(ctx context.Context, pending []allocation.PendingRelease) bool {
	if len(pending) == 0 {
		return true
	}
	var changes []allocation.Change
	for _, o := range pending {
		changes = append(changes, allocation.Change{Released: o})
	}
	if err := n.cfg.Store.Commit(ctx, changes...); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Released devices are not assigned yet: the state cannot "+
				"be written, which is tried again", "err", err)
		}
		return false
	}
	for _, o := range pending {
		delete(n.from, o.Entry())
	}
	n.cfg.Reassignable()
	return true
}

// byResource returns the pending releases of devices. Those of other kinds are not for device plugins.
func byResource(all []allocation.PendingRelease) map[string][]allocation.PendingRelease {
	out := map[string][]allocation.PendingRelease{}
	for _, o := range all {
		if o.Kind == "" {
			out[o.Resource] = append(out[o.Resource], o)
		}
	}
	return out
}

// part returns the part of o with these ids; without ids, nothing.
func part(o allocation.PendingRelease, ids sets.Set[string]) []allocation.PendingRelease {
	if ids.Len() == 0 {
		return nil
	}
	o.IDs = sets.List(ids)
	return []allocation.PendingRelease{o}
}
