package managers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/numalet/numalet/agent/admission"
	"github.com/numalet/numalet/deviceplugin"
)

// Each cause clears so often, while so many other pods wait for something else.
const (
	wakeRounds  = 300
	wakeWaiting = 100
	wakeDevices = "example.com/wake"
)

// wakeNode is a node on which a pod waits, and the causes for which it does.
type wakeNode struct {
	*desk
	plugins *movingPlugins
	blocker int // the number of the pod that holds all devices
}

// cause makes the next pod wait; what it returns clears that.
type cause func(ctx context.Context, n *wakeNode) (clears func(), err error)

// Wakes measures how long a pod that waits is not admitted after what it waited for has come.
func Wakes(ctx context.Context) (*Table, error) {
	t := newTable("Waking",
		"From the moment in which the cause to wait clears until the pod is admitted, its "+
			"assignment on\n"+
			"disk: the real queue, managers and state file, beside 100 pods that wait for "+
			"something else.\n"+
			"The plugin answers at once. By the clock.",
		"CAUSE", "ROUNDS", "p50 / p99")
	var all times
	for _, part := range []struct {
		name  string
		cause cause
	}{
		{"the plugin registers", away}, {"a device is healthy again", ill},
		{"a pod is removed", held},
	} {
		took, err := wakeTimes(ctx, part.cause)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.name, err)
		}
		t.row(part.name, fmt.Sprint(len(took)), took.String())
		all = append(all, took...)
	}
	all.sort()
	t.row("all", fmt.Sprint(len(all)), all.String())
	t.Values["admission_wake_ms_p50"] = ms(all.p50())
	t.Values["admission_wake_ms_p99"] = ms(all.p99())
	return t, nil
}

func wakeTimes(ctx context.Context, c cause) (took times, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	dir, err := os.MkdirTemp("", "nl-")
	if err != nil {
		cancel()
		return nil, err
	}
	defer os.RemoveAll(dir)
	p := &movingPlugins{}
	p.offer(deviceplugin.Resource{})
	d, err := newDesk(dir, p)
	if err != nil {
		cancel()
		return nil, err
	}
	ended := make(chan error, 2)
	go func() { ended <- d.store.Run(ctx) }()
	go func() { ended <- d.queue.Run(ctx) }()
	defer func() {
		cancel()
		err = errors.Join(err, <-ended, <-ended)
	}()
	n := &wakeNode{desk: d, plugins: p}
	for range wakeWaiting {
		if err := n.submit(ctx, "example.com/never", admission.Wait); err != nil {
			return nil, err
		}
	}
	for range wakeRounds {
		one, err := n.round(ctx, c)
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	took.sort()
	return took, nil
}

// round has one pod wait and be admitted, and takes it away again.
func (n *wakeNode) round(ctx context.Context, c cause) (time.Duration, error) {
	if err := n.settle(ctx); err != nil {
		return 0, err
	}
	clears, err := c(ctx, n)
	if err != nil {
		return 0, err
	}
	if err := n.submit(ctx, wakeDevices, admission.Wait); err != nil {
		return 0, err
	}
	began := time.Now()
	clears()
	err = n.await(ctx, admission.Admit)
	took := time.Since(began)
	n.queue.Release(uidOf(n.number))
	return took, err
}

// submit adds a pod with a device of the resource and waits for what is said of it.
func (n *wakeNode) submit(ctx context.Context, name v1.ResourceName, want admission.Outcome) error {
	n.number++
	pod := benchPod(n.number)
	amounts := pod.Spec.Containers[0].Resources.Limits
	delete(amounts, benchResource)
	amounts[name] = resource.MustParse("2") // all there are
	amounts[v1.ResourceCPU] = resource.MustParse("1")
	n.queue.Submit(pod, false)
	return n.await(ctx, want)
}

func (n *wakeNode) await(ctx context.Context, want admission.Outcome) error {
	for {
		select {
		case r := <-n.outcomes:
			switch r.Outcome {
			case want:
				return nil
			case admission.Wait: // in other words, before it is admitted
			default:
				return fmt.Errorf("pod %s: %s: %s: %s; want %s",
					r.Pod.Name, r.Outcome, r.Reason, r.Message, want)
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// away: the plugin has not registered.
func away(_ context.Context, n *wakeNode) (func(), error) {
	n.plugins.offer(deviceplugin.Resource{})
	n.queue.Poke()
	return func() { n.plugins.offer(two(true)); n.queue.Poke() }, nil
}

// ill: one of its two devices is unhealthy.
func ill(_ context.Context, n *wakeNode) (func(), error) {
	n.plugins.offer(two(false))
	n.queue.Poke()
	return func() { n.plugins.offer(two(true)); n.queue.Poke() }, nil
}

// held: a pod that terminates has both.
func held(ctx context.Context, n *wakeNode) (func(), error) {
	n.plugins.offer(two(true))
	n.queue.Poke()
	if err := n.submit(ctx, wakeDevices, admission.Admit); err != nil {
		return nil, err
	}
	n.blocker = n.number
	n.queue.Leaving(uidOf(n.blocker))
	return func() { n.queue.Release(uidOf(n.blocker)) }, nil
}

// settle waits until nothing that was released is recorded any more.
func (n *wakeNode) settle(ctx context.Context) error {
	for len(n.store.State().Pods) > 0 {
		select {
		case <-n.store.Changed():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// two devices, of which the second one may be unhealthy.
func two(healthy bool) deviceplugin.Resource {
	return deviceplugin.Resource{
		Name: wakeDevices, Connected: true,
		Devices: []*deviceplugin.Device{{ID: "0", Healthy: true}, {ID: "1", Healthy: healthy}},
	}
}

// movingPlugins answer at once, with an inventory that changes.
type movingPlugins struct {
	promptPlugins
	now     atomic.Pointer[deviceplugin.Inventory]
	version atomic.Uint64
}

// offer makes the resource all that there is; one without a name is none.
func (p *movingPlugins) offer(r deviceplugin.Resource) {
	next := deviceplugin.Inventory{
		Version: p.version.Add(1), Resources: map[string]deviceplugin.Resource{},
	}
	if r.Name != "" {
		next.Resources[r.Name] = r
	}
	p.now.Store(&next)
}

func (p *movingPlugins) Inventory() deviceplugin.Inventory { return *p.now.Load() }
