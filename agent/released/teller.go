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

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/internal/await"
)

// Plugins are the device plugins.
type Plugins interface {
	Inventory() devicemanager.Inventory
	Released(ctx context.Context, resource string, ids []string, by holder.Holder) error
}

// Store has what plugins are to hear.
type Store interface {
	State() allocation.State
	Commit(ctx context.Context, changes ...allocation.Change) error
}

// Config is what plugins are told with.
type Config struct {
	Store   Store
	Plugins Plugins
	// Changed has a value when the state or the inventory is another one.
	Changed <-chan struct{}
	// Settled is told that devices can be given out again. It must not block.
	Settled func()
	// Tell records an event of the node. It must not block.
	Tell func(eventType, reason, message string)
}

// The pace of a plugin that does not answer with success. It is tried again after pause, and its
// devices are given out all the same when that has gone on for patience. While it is away nothing
// is tried, and its devices are not given out anyway, so that this time does not count.
const (
	pause    = time.Second
	patience = 30 * time.Second
)

// Teller tells plugins.
type Teller struct {
	cfg  Config
	done chan done
	work sync.WaitGroup

	// Owned by Run.
	busy sets.Set[string]     // resources whose plugins are being told
	due  map[string]time.Time // when a resource's plugin is tried again
	// from is when telling what is owed was first tried, by its entry; later by the time for which its
	// plugin was away since.
	from map[types.UID]time.Time
	away map[string]time.Time // since when a resource's plugin is away
}

// done is what came of telling a plugin: what it answered to each, nil for success.
type done struct {
	resource string
	owed     []allocation.Owed
	answers  []error
}

// New returns a teller, for Run.
func New(c Config) *Teller {
	return &Teller{
		cfg: c, done: make(chan done), busy: sets.New[string](), due: map[string]time.Time{},
		from: map[types.UID]time.Time{}, away: map[string]time.Time{},
	}
}

// Run tells plugins until ctx ends. A plugin that does not answer holds up no other one.
func (t *Teller) Run(ctx context.Context) error {
	defer t.work.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.cfg.Changed:
		case d := <-t.done:
			t.busy.Delete(d.resource)
			t.told(ctx, d)
		case <-timer.C:
		}
		timer.Reset(t.pass(ctx))
	}
}

// pass begins to tell the plugins that are there, and returns when to look again.
func (t *Teller) pass(ctx context.Context) (next time.Duration) {
	next = time.Hour
	state := t.cfg.Store.State()
	if len(state.Owed) == 0 {
		return next
	}
	inventory, held := t.cfg.Plugins.Inventory(), allocation.TakenBy(state.List()...).Devices()
	var settled []allocation.Owed
	for resource, owed := range byResource(state.Owed) {
		if t.busy.Has(resource) {
			continue
		}
		var left []allocation.Owed
		for _, o := range owed {
			// What runs may turn out to have a device that was given back.
			ids := sets.New(o.IDs...)
			theirs := held[resource].Intersection(ids)
			settled = append(settled, part(o, theirs)...)
			left = append(left, part(o, ids.Difference(theirs))...)
		}
		t.follow(resource, inventory.Resources[resource].Connected, owed)
		wait := time.Until(t.due[resource])
		switch r := inventory.Resources[resource]; {
		case !r.Connected || len(left) == 0:
		case r.Options.Released == devicemanager.ReleasedUnwanted:
			settled = append(settled, left...)
		case wait > 0:
			next = min(next, wait)
		default:
			t.tell(ctx, resource, left)
		}
	}
	if !t.settle(ctx, settled) {
		next = min(next, pause)
	}
	return next
}

// follow notes whether a plugin is there. The time for which it was away does not count against it.
func (t *Teller) follow(resource string, connected bool, owed []allocation.Owed) {
	since, away := t.away[resource]
	switch {
	case !connected && !away:
		t.away[resource] = time.Now()
	case connected && away:
		delete(t.away, resource)
		for _, o := range owed {
			if from, tried := t.from[o.Entry()]; tried {
				t.from[o.Entry()] = from.Add(time.Since(since))
			}
		}
	}
}

// tell has a goroutine tell a plugin.
func (t *Teller) tell(ctx context.Context, resource string, owed []allocation.Owed) {
	t.busy.Insert(resource)
	for _, o := range owed {
		if _, known := t.from[o.Entry()]; !known {
			t.from[o.Entry()] = time.Now()
		}
	}
	t.work.Go(func() {
		d := done{resource: resource}
		for _, o := range owed {
			err := t.cfg.Plugins.Released(ctx, resource, o.IDs, holder.Holder{
				Namespace: o.Namespace, Pod: o.Name, UID: string(o.UID),
			})
			d.owed, d.answers = append(d.owed, o), append(d.answers, err)
			if ctx.Err() != nil || !t.cfg.Plugins.Inventory().Resources[resource].Connected {
				break
			}
		}
		await.Send(ctx, t.done, d)
	})
}

// told settles what a plugin knows, and what it had its time for.
func (t *Teller) told(ctx context.Context, d done) {
	now := time.Now()
	var settled []allocation.Owed
	var late []int // of those owed
	for i, o := range d.owed {
		err := d.answers[i]
		switch {
		case err == nil:
		case now.Sub(t.from[o.Entry()]) >= patience:
			late = append(late, i)
		default:
			klog.FromContext(ctx).V(2).Info("Telling a device plugin of released devices is "+
				"tried again", "resource", o.Resource, "devices", devicemanager.Few(o.IDs),
				"after", pause, "err", err)
			t.due[d.resource] = now.Add(pause)
			continue
		}
		settled = append(settled, o)
	}
	if !t.settle(ctx, settled) {
		t.due[d.resource] = now.Add(pause) // it is told once more
		return
	}
	for _, i := range late {
		t.gaveUp(ctx, d.owed[i], d.answers[i])
	}
}

// reasonUnanswered is the reason of the event of devices that are given out although their plugin never
// answered. The kubelet has none.
const reasonUnanswered = "DeviceReleaseUnanswered"

// gaveUp tells of devices that are given out although their plugin never answered; why is its last
// answer.
func (t *Teller) gaveUp(ctx context.Context, o allocation.Owed, why error) {
	klog.FromContext(ctx).Error(why, "Device plugin was not told that devices are released; "+
		"they are given out all the same", "resource", o.Resource,
		"devices", devicemanager.Few(o.IDs), "pod", klog.KRef(o.Namespace, o.Name))
	t.cfg.Tell(v1.EventTypeWarning, reasonUnanswered, fmt.Sprintf(
		"Devices %s of %s, which pod %s/%s had, are given out again though their device "+
			"plugin did not answer that it knows that they were released: %v",
		devicemanager.Few(o.IDs), o.Resource, o.Namespace, o.Name, why))
}

// settle takes out of the state what plugins are to hear no more, and reports whether that worked.
func (t *Teller) settle(ctx context.Context, owed []allocation.Owed) bool {
	if len(owed) == 0 {
		return true
	}
	var changes []allocation.Change
	for _, o := range owed {
		changes = append(changes, allocation.Change{Settle: o})
	}
	if err := t.cfg.Store.Commit(ctx, changes...); err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Info("Released devices are not given out yet: the state cannot "+
				"be written, which is tried again", "err", err)
		}
		return false
	}
	for _, o := range owed {
		delete(t.from, o.Entry())
	}
	t.cfg.Settled()
	return true
}

func byResource(all []allocation.Owed) map[string][]allocation.Owed {
	out := map[string][]allocation.Owed{}
	for _, o := range all {
		out[o.Resource] = append(out[o.Resource], o)
	}
	return out
}

// part is what is owed of these ids, nothing without any.
func part(o allocation.Owed, ids sets.Set[string]) []allocation.Owed {
	if ids.Len() == 0 {
		return nil
	}
	o.IDs = sets.List(ids)
	return []allocation.Owed{o}
}
