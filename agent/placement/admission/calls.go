package admission

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/internal/mailbox"
)

// calls runs what takes time, one goroutine for each pod.
type calls struct {
	cfg  Config
	done *mailbox.Box[answer]
	work sync.WaitGroup
	// last has each pod's last call, until it is answered. Run's goroutine owns it.
	last map[types.UID]*call
}

type call struct {
	pod    types.UID
	cancel context.CancelFunc
}

// answer carries the event of a call back to Run's goroutine.
type answer struct {
	*call
	event record.Event
}

func newCalls(cfg Config) calls {
	return calls{cfg: cfg, done: mailbox.New[answer](), last: map[types.UID]*call{}}
}

// start runs f for the pod until the deadline; zero: as long as f takes.
func (c *calls) start(ctx context.Context, pod types.UID, deadline time.Time,
	f func(context.Context) record.Event) {
	one := &call{pod: pod}
	if deadline.IsZero() {
		ctx, one.cancel = context.WithCancel(ctx)
	} else {
		ctx, one.cancel = context.WithDeadline(ctx, deadline)
	}
	c.last[pod] = one
	c.work.Go(func() { c.done.Put(answer{one, f(ctx)}) })
}

// cancel ends the pod's last call, whose answer still comes. There is none if it was answered while the agent
// stops: the line takes no such answer.
func (c *calls) cancel(pod types.UID) {
	if last := c.last[pod]; last != nil {
		last.cancel()
	}
}

// take ends the call that was answered, and reports whether it was the pod's last one.
func (c *calls) take(back answer) bool {
	if c.last[back.pod] != back.call {
		return false
	}
	back.cancel()
	delete(c.last, back.pod)
	return true
}

func (c *calls) wait() { c.work.Wait() }

// ask gets a plugin's preference. If the plugin gives none, the pod is placed without.
func (c *calls) ask(ctx context.Context, pod *v1.Pod, a allocation.Ask) record.Event {
	whom := holder.Holder{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
		Container: a.Container}
	ids, err := c.cfg.Plugins.Preferred(whom.Context(ctx), a.PreferredRequest)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Going on without the device plugin's preference",
			"pod", klog.KObj(pod), "container", a.Container, "resource", a.AskKey.Resource,
			"err", err)
		c.cfg.Unadvised(pod, a.AskKey, err)
	}
	return record.Advised{Key: a.AskKey, IDs: ids, Err: err}
}

// reread has what is stale read again, for a second at most.
func (c *calls) reread(ctx context.Context, what decide.Stale) record.Event {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	c.cfg.Reread(ctx, what)
	return record.Looked{}
}

// drop has the store drop the pod.
func (c *calls) drop(ctx context.Context, stored allocation.Pod) record.Event {
	return record.Dropped{Err: c.cfg.Store.Commit(ctx, allocation.Change{
		Drop: stored.UID, Releases: allocation.ReleasesOf(stored, allocation.Pod{}, c.cfg.mayWant),
	})}
}

// resize records requests and limits as allocated to the pod, with what it holds then (nil: as before).
func (c *calls) resize(ctx context.Context, pod *v1.Pod, to record.RecordResources) record.Event {
	before, known := c.cfg.Store.State().Pods[pod.UID]
	put := before
	if !known {
		put = allocation.Pod{
			UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, BootID: c.cfg.BootID,
		}
	}
	if put.Resources = &to.Resources; to.Held != nil {
		put.Containers = to.Held.Containers
	}
	if err := c.cfg.Store.Commit(ctx, allocation.Change{Put: put}); err != nil {
		return record.Resized{Pod: before, Err: err}
	}
	return record.Resized{Pod: put}
}

// assign calls Allocate for each device set without an answer, has the pod's claims prepared beside it,
// and commits the assignment, unless the store has it already.
func (c *calls) assign(ctx context.Context, pod *v1.Pod, reserved allocation.Pod) record.Event {
	began := time.Now()
	stored := c.cfg.Store.State().Pods[reserved.UID]
	prepared := make(chan error, 1)
	go func() { prepared <- c.prepare(ctx, pod, reserved) }()
	answers, err := c.allocateAll(ctx, reserved)
	err = cmp.Or(err, <-prepared)
	reserved.Containers = maps.Clone(reserved.Containers)
	for key, answer := range answers {
		container := reserved.Containers[key.Container]
		reserved.Containers[key.Container] = container.With(container.Devices().With(
			func(d *allocation.DeviceSet) {
				if d.Resource == key.Resource {
					d.Answer = answer
				}
			}))
	}
	reserved.Version, reserved.Resources = stored.Version, stored.Resources
	same := reflect.DeepEqual(reserved, stored) || reserved.IsEmpty() && stored.IsEmpty()
	if err == nil && !same {
		change := allocation.Change{
			Put: reserved, Releases: allocation.ReleasesOf(stored, reserved, c.cfg.mayWant),
		}
		if err = c.cfg.Store.Commit(ctx, change); err != nil {
			err = fmt.Errorf("%w: %w", record.ErrCommit, err)
		}
	}
	if err != nil {
		return record.Failed{Pod: reserved, Err: err, Began: began}
	}
	return record.Allocated{Pod: reserved}
}

// allocateAll calls the plugins side by side and returns the answers got, also on error.
func (c *calls) allocateAll(ctx context.Context, p allocation.Pod) (
	map[allocation.AskKey][]byte, error) {
	var group errgroup.Group
	var mu sync.Mutex // guards answers
	answers := map[allocation.AskKey][]byte{}
	for name, container := range p.Containers {
		for _, d := range container.Devices() {
			if d.Answer != nil {
				continue
			}
			whom := holder.Holder{Namespace: p.Namespace, Pod: p.Name, UID: string(p.UID),
				Container: name}
			group.Go(func() error {
				raw, err := c.allocate(whom.Context(ctx), d)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				answers[allocation.AskKey{Container: name, Resource: d.Resource}] = raw
				return nil
			})
		}
	}
	err := group.Wait()
	return answers, err
}

func (c *calls) allocate(ctx context.Context, d allocation.DeviceSet) ([]byte, error) {
	resp, err := c.cfg.Plugins.Allocate(ctx, d.Resource, d.IDs)
	if err != nil {
		return nil, &record.CallError{Resource: d.Resource, Err: err}
	}
	raw, err := checkpoint.EncodeResponse(resp)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.Resource, err)
	}
	if raw == nil {
		raw = []byte{} // an empty answer is an answer
	}
	return raw, nil
}
