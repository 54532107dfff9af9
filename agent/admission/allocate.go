package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/agent/mailbox"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/holder"
)

// calls has what takes time done, by a goroutine for each pod.
type calls struct {
	cfg  Config
	done *mailbox.Box[completion]
	work sync.WaitGroup
}

// completion is what a goroutine brings back.
type completion struct {
	entry *entry
	call  int
	began time.Time
	err   error
	// advice is the answer to an ask.
	asked  allocation.AskKey
	advice []string
	// reserved is the reservation with the answers got so far; assigned: it is recorded.
	reserved allocation.Pod
	assigned bool
}

// errCommit marks an error of the store, as opposed to one of a plugin.
var errCommit = errors.New("record the assignment")

// callError is an error of a plugin, in the plugin's own words.
type callError struct {
	resource string
	error
}

func (e *callError) Unwrap() error { return e.error }

// slowAnswer is after how long it is told that a pod waits for a plugin's answer.
const slowAnswer = time.Second

// start runs f for the entry in a goroutine of its own, until the deadline; zero: as long as it
// takes.
func (c *calls) start(ctx context.Context, e *entry, deadline time.Time,
	f func(context.Context) completion) {
	if deadline.IsZero() {
		ctx, e.tries.cancel = context.WithCancel(ctx)
	} else {
		ctx, e.tries.cancel = context.WithDeadline(ctx, deadline)
	}
	e.tries.call++
	call, began := e.tries.call, time.Now()
	c.work.Go(func() {
		done := f(ctx)
		done.entry, done.call, done.began = e, call, began
		c.done.Put(done)
	})
}

func (c *calls) wait() { c.work.Wait() }

// ask gets a plugin's advice. It is only advice: without it the pod is placed all the same.
func (c *calls) ask(ctx context.Context, pod *v1.Pod, a allocation.Ask) completion {
	whom := holder.Holder{Namespace: pod.Namespace, Pod: pod.Name, UID: string(pod.UID),
		Container: a.Container}
	advice, err := c.cfg.Plugins.Preferred(whom.Context(ctx), a.PreferredRequest)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Going on without the device plugin's preference",
			"pod", klog.KObj(pod), "container", a.Container, "resource", a.AskKey.Resource,
			"err", err)
		c.cfg.Unadvised(pod, a.AskKey, err)
	}
	return completion{asked: a.AskKey, advice: advice, err: err}
}

// assign calls Allocate for every device set that has no answer yet and commits the assignment,
// unless the store has it already.
func (c *calls) assign(ctx context.Context, reserved allocation.Pod) completion {
	stored := c.cfg.Store.State().Pods[reserved.UID]
	answers, err := c.allocateAll(ctx, reserved)
	reserved.Containers = maps.Clone(reserved.Containers)
	for key, answer := range answers {
		container := reserved.Containers[key.Container]
		container.Devices = slices.Clone(container.Devices)
		for i := range container.Devices {
			if container.Devices[i].Resource == key.Resource {
				container.Devices[i].Answer = answer
			}
		}
		reserved.Containers[key.Container] = container
	}
	reserved.Version = stored.Version
	if err == nil && !reflect.DeepEqual(reserved, stored) {
		change := allocation.Change{
			Put: reserved, Owe: allocation.Owes(stored, reserved, c.cfg.mayWant),
		}
		if err = c.cfg.Store.Commit(ctx, change); err != nil {
			err = fmt.Errorf("%w: %w", errCommit, err)
		}
	}
	return completion{reserved: reserved, assigned: err == nil, err: err}
}

// allocateAll calls the plugins side by side and returns the answers got, also on error.
func (c *calls) allocateAll(ctx context.Context, p allocation.Pod) (
	map[allocation.AskKey][]byte, error) {
	var group errgroup.Group
	var mu sync.Mutex // guards answers
	answers := map[allocation.AskKey][]byte{}
	for name, container := range p.Containers {
		for _, d := range container.Devices {
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
		return nil, &callError{d.Resource, err}
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

// mayPass reports whether an error says that the plugin is away or too slow, as opposed to an
// answer that is no.
func mayPass(err error) bool {
	if _, stopped := errors.AsType[*deviceplugin.StoppedError](err); stopped ||
		errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Canceled:
		return true
	}
	return false
}
