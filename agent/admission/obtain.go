package admission

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/allocation"
	"github.com/numalet/numalet/deviceplugin"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
)

// completion is what a goroutine brings back.
type completion struct {
	entry *entry
	// reread: the machine was looked at again, so that the pod may have a place.
	reread bool
	// advice is the answer to an ask; asked is set then.
	asked  *allocation.AskKey
	advice []string
	// reserved is the reservation with the answers got so far.
	reserved allocation.Pod
	// began is when the goroutine was started.
	began time.Time
	err   error
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

// start runs f for the entry in a goroutine of its own. The first time it may take what it takes,
// trying again ends at the pod's deadline.
func (q *Queue) start(ctx context.Context, e *entry, f func(context.Context) completion) {
	began := time.Now()
	e.phase, e.retryAt = busy, began.Add(slowAnswer)
	if e.retries > 0 {
		ctx, e.cancel = context.WithDeadline(ctx, e.since.Add(q.cfg.Wait))
	} else {
		ctx, e.cancel = context.WithCancel(ctx)
	}
	q.work.Go(func() {
		c := f(ctx)
		c.began = began
		q.done.Put(c)
	})
}

// ask gets a plugin's advice. It is only advice: without it the pod is placed all the same.
func (q *Queue) ask(ctx context.Context, e *entry, a allocation.Ask) completion {
	advice, err := q.cfg.Plugins.Preferred(ctx, a.PreferredRequest)
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Info("Going on without the device plugin's preference",
			"pod", klog.KObj(e.pod), "container", a.Container, "resource", a.AskKey.Resource,
			"err", err)
		q.cfg.Unadvised(e.pod, a.AskKey, err)
	}
	return completion{entry: e, asked: &a.AskKey, advice: advice, err: err}
}

// obtain calls Allocate for every device set that has no answer yet and commits the assignment,
// unless the store has it already.
func (q *Queue) obtain(ctx context.Context, e *entry, reserved allocation.Pod) completion {
	stored := q.cfg.Store.State().Pods[reserved.UID]
	reserved.Containers = maps.Clone(reserved.Containers)
	answers, err := q.allocateAll(ctx, reserved)
	for key, answer := range answers {
		c := reserved.Containers[key.Container]
		c.Devices = slices.Clone(c.Devices)
		for i := range c.Devices {
			if c.Devices[i].Resource == key.Resource {
				c.Devices[i].Answer = answer
			}
		}
		reserved.Containers[key.Container] = c
	}
	done := completion{entry: e, reserved: reserved, err: err}
	if err != nil || reflect.DeepEqual(reserved, stored) {
		return done
	}
	if err := q.cfg.Store.Commit(ctx, allocation.Change{Put: reserved}); err != nil {
		done.err = fmt.Errorf("%w: %w", errCommit, err)
	}
	return done
}

// allocateAll calls the plugins side by side and returns the answers got, also on error.
func (q *Queue) allocateAll(ctx context.Context, p allocation.Pod) (
	map[allocation.AskKey][]byte, error) {
	type answer struct {
		key allocation.AskKey
		raw []byte
	}
	var group errgroup.Group
	got := make(chan answer, countDevices(p))
	for name, c := range p.Containers {
		for _, d := range c.Devices {
			if d.Answer != nil {
				continue
			}
			group.Go(func() error {
				raw, err := q.allocate(ctx, d)
				if err == nil {
					got <- answer{allocation.AskKey{Container: name, Resource: d.Resource}, raw}
				}
				return err
			})
		}
	}
	err := group.Wait()
	close(got)
	answers := map[allocation.AskKey][]byte{}
	for a := range got {
		answers[a.key] = a.raw
	}
	return answers, err
}

func (q *Queue) allocate(ctx context.Context, d allocation.DeviceSet) ([]byte, error) {
	resp, err := q.cfg.Plugins.Allocate(ctx, d.Resource, d.IDs)
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

func countDevices(p allocation.Pod) (n int) {
	for _, c := range p.Containers {
		n += len(c.Devices)
	}
	return n
}

// completed continues with an entry whose goroutine is back.
func (q *Queue) completed(ctx context.Context, c completion) {
	e := c.entry
	e.cancel()
	e.retryAt = time.Time{}
	switch {
	case ctx.Err() != nil: // the agent stops; nothing is decided any more
	case c.reread:
		e.phase = queued
	case c.asked != nil:
		e.advise(*c.asked, c.advice)
		if c.err != nil {
			e.ignored = append(e.ignored, fmt.Sprintf("%s of container %s: %v",
				c.asked.Resource, c.asked.Container, c.err))
		}
		if c.err != nil && mayPass(c.err) {
			e.silent = e.silent.Union(sets.New(c.asked.Resource))
		}
		e.phase = queued
	case c.err == nil:
		q.move(e, admitted, grip{reserved: c.reserved})
		q.say(e, Admit, "", "")
		e.counsel = counsel{}
	case e.adopt:
		q.adopt(e, c.err)
	default:
		q.failed(e, c)
	}
}

// failed decides what an error of a plugin or of the store means for the pod.
func (q *Queue) failed(e *entry, c completion) {
	rejection := unexpected(c.err)
	reason := ReasonWaitPlugin
	switch {
	case errors.Is(c.err, errCommit):
		reason = ReasonWaitStore
	case !mayPass(c.err):
		q.reject(e, rejection)
		return
	}
	now := time.Now()
	if q.expired(e, now) {
		q.reject(e, rejection)
		return
	}
	if !q.sound(c.reserved) { // the machine changed meanwhile
		q.hold(e, queued, grip{claimed: true})
		return
	}
	// The claim is kept, with the answers that did come.
	q.move(e, waiting, grip{reserved: c.reserved})
	e.refusal = rejection
	e.retryAt = c.began.Add(min(time.Second<<min(e.retries, 4), 10*time.Second))
	if e.retryAt.Before(now) {
		e.retryAt = now // the call took so long that the next one is the way to wait
	}
	e.retries++
	message := c.err.Error()
	var call *callError
	if errors.As(c.err, &call) {
		message = fmt.Sprintf("the device plugin of %s failed: %v", call.resource, call.error)
	}
	q.say(e, Wait, reason, message)
}

// unanswered lists the resources whose plugins have not said yet what the pod's containers get.
func (e *entry) unanswered() []string {
	resources := sets.New[string]()
	for _, c := range e.reserved.Containers {
		for _, d := range c.Devices {
			if d.Answer == nil {
				resources.Insert(d.Resource)
			}
		}
	}
	return sets.List(resources)
}

// mayPass reports whether an error says that the plugin is away or too slow, as opposed to an
// answer that is no.
func mayPass(err error) bool {
	var stopped *deviceplugin.StoppedError
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &stopped) {
		return true
	}
	switch status.Code(err) {
	case codes.DeadlineExceeded, codes.Unavailable, codes.Canceled:
		return true
	}
	return false
}
