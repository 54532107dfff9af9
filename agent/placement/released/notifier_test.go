package released

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/internal/mailbox"
)

const gpu, nic = "example.com/gpu", "example.com/nic"

// plugins are told by answer, and remember what they were told.
type plugins struct {
	mu        sync.Mutex
	inventory devicemanager.Inventory
	answer    func(ctx context.Context, resource string) error
	reported  []string
}

func (p *plugins) Inventory() devicemanager.Inventory {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.inventory
}

func (p *plugins) Released(ctx context.Context, resource string, ids []string,
	by holder.Holder) error {
	p.mu.Lock()
	p.reported = append(p.reported, fmt.Sprint(by.Namespace, "/", by.Pod, "/", by.UID, " ", ids))
	answer := p.answer
	p.mu.Unlock()
	if answer == nil {
		return nil
	}
	return answer(ctx, resource)
}

// desk is a notifier at work on a store.
type desk struct {
	t            *testing.T
	store        *store.Store
	plugins      *plugins
	changed      mailbox.Topic // the inventory
	reassignable int
	gaveUp       []string
}

func bubble(t *testing.T, f func(d *desk)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := store.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		d := &desk{t: t, store: store, plugins: &plugins{}}
		ctx, cancel := context.WithCancel(context.Background())
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		work.Go(func() { _ = store.Run(ctx) })
		d.commit(allocation.Change{Put: d.pod("a", gpu, "gpu-0", "gpu-1")},
			allocation.Change{Put: d.pod("b", gpu, "gpu-2")},
			allocation.Change{Put: d.pod("c", nic, "nic-0")})
		notifier := New(Config{
			Store: store, Plugins: d.plugins, Reassignable: func() { d.reassignable++ },
			Changed: mailbox.Subscribe(store.Changes(), &d.changed),
			Tell: func(eventType, reason, message string) {
				d.gaveUp = append(d.gaveUp, eventType+" "+reason+": "+message)
			},
		})
		work.Go(func() { _ = notifier.Run(ctx) })
		f(d)
		cancel()
		synctest.Wait()
	})
}

func (d *desk) pod(name, resource string, ids ...string) allocation.Pod {
	return allocation.Pod{
		UID: types.UID("uid-" + name), Namespace: "team", Name: name,
		Containers: map[string]allocation.Container{"main": {allocation.Devices{
			{Resource: resource, IDs: ids, Answer: []byte{}},
		}}},
	}
}

func (d *desk) commit(changes ...allocation.Change) {
	d.t.Helper()
	if err := d.store.Commit(context.Background(), changes...); err != nil {
		d.t.Fatal(err)
	}
}

// drop releases pods.
func (d *desk) drop(names ...string) {
	d.t.Helper()
	for _, name := range names {
		held := d.store.State().Pods[types.UID("uid-"+name)]
		d.commit(allocation.Change{Drop: held.UID, Releases: allocation.ReleasesOf(held, allocation.Pod{},
			func(string) bool { return true })})
	}
}

// offer has plugins be there, with that wish; of others nothing is known.
func (d *desk) offer(wish devicemanager.ReleasedWish, resources ...string) {
	inventory := devicemanager.Inventory{Resources: map[string]devicemanager.Resource{}}
	for _, name := range resources {
		inventory.Resources[name] = devicemanager.Resource{
			Connected: true, Options: devicemanager.Options{Released: wish},
		}
	}
	d.plugins.mu.Lock()
	d.plugins.inventory = inventory
	d.plugins.mu.Unlock()
	d.changed.Publish()
	synctest.Wait()
}

// is checks what plugins were told, in whatever order, and what is owed still.
func (d *desk) is(reported string, owed ...string) {
	d.t.Helper()
	synctest.Wait()
	var left []string
	for _, o := range d.store.State().PendingReleases {
		left = append(left, fmt.Sprint(o.Name, " ", o.IDs))
	}
	d.plugins.mu.Lock()
	got := slices.Clone(d.plugins.reported)
	d.plugins.reported = nil
	d.plugins.mu.Unlock()
	slices.Sort(got)
	if text := strings.Join(got, ", "); text != reported {
		d.t.Errorf("plugins were told %s, want %s", text, reported)
	}
	if !slices.Equal(left, owed) {
		d.t.Errorf("owed are %q, want %q", left, owed)
	}
}

const tellsA, tellsB, tellsC = "team/a/uid-a [gpu-0 gpu-1]", "team/b/uid-b [gpu-2]",
	"team/c/uid-c [nic-0]"

func TestTold(t *testing.T) {
	bubble(t, func(d *desk) {
		d.offer(devicemanager.ReleasedWanted, gpu, nic)
		d.drop("a", "b", "c")
		d.is(tellsA + ", " + tellsB + ", " + tellsC)
		if d.reassignable == 0 {
			t.Error("nobody was told that devices can be given out")
		}
	})
}

// What is owed of another kind is for others to settle.
func TestOtherKinds(t *testing.T) {
	bubble(t, func(d *desk) {
		d.offer(devicemanager.ReleasedWanted, gpu)
		d.commit(allocation.Change{Releases: []allocation.PendingRelease{
			{UID: "uid-d", Name: "d", Kind: "claims", Resource: gpu, IDs: []string{"gpu-0"}},
		}})
		d.drop("a")
		d.is(tellsA, "d [gpu-0]")
	})
}

// A plugin that is away is told when it is back, and one that turns out not to want it is not.
func TestAway(t *testing.T) {
	bubble(t, func(d *desk) {
		d.drop("a", "c")
		time.Sleep(10 * time.Minute)
		d.is("", "a [gpu-0 gpu-1]", "c [nic-0]")
		d.offer(devicemanager.ReleasedWanted, gpu)
		d.is(tellsA, "c [nic-0]")
		d.offer(devicemanager.ReleasedUnwanted, gpu, nic)
		d.is("")
	})
}

// A plugin that says no is told again, and after a time its devices are given out all the same. It
// holds up nothing of another plugin, nor what comes after.
func TestRefused(t *testing.T) {
	bubble(t, func(d *desk) {
		d.plugins.answer = func(_ context.Context, resource string) error {
			if resource == gpu {
				return errors.New("not now")
			}
			return nil
		}
		d.offer(devicemanager.ReleasedWanted, gpu, nic)
		d.drop("a", "c")
		d.is(tellsA+", "+tellsC, "a [gpu-0 gpu-1]")
		time.Sleep(pause)
		d.is(tellsA, "a [gpu-0 gpu-1]")
		time.Sleep(patience - 2*pause)
		synctest.Wait()
		d.plugins.reported = nil
		d.drop("b")
		time.Sleep(pause)
		d.is(tellsA+", "+tellsB, "b [gpu-2]")
		if want := []string{"Warning DeviceReleaseUnanswered: Devices gpu-0, gpu-1 of example.com/gpu, " +
			"which pod team/a had, are given out again though their device plugin did not answer that it " +
			"knows that they were released: not now"}; !slices.Equal(d.gaveUp, want) {
			t.Errorf("given up: %q, want %q", d.gaveUp, want)
		}
		d.plugins.answer = nil
		time.Sleep(pause)
		d.is(tellsB)
	})
}

// A plugin that is away, as while it is updated, has its whole time when it is back.
func TestAwayDoesNotCount(t *testing.T) {
	bubble(t, func(d *desk) {
		d.plugins.answer = func(context.Context, string) error { return errors.New("not now") }
		d.offer(devicemanager.ReleasedWanted, gpu)
		d.drop("a")
		d.is(tellsA, "a [gpu-0 gpu-1]")
		d.offer(devicemanager.ReleasedWanted)
		time.Sleep(10 * time.Minute)
		d.offer(devicemanager.ReleasedWanted, gpu)
		d.is(tellsA, "a [gpu-0 gpu-1]")
		time.Sleep(patience + pause)
		synctest.Wait()
		d.plugins.reported = nil
		if d.is(""); len(d.gaveUp) != 1 {
			t.Errorf("given up: %q", d.gaveUp)
		}
	})
}

// A plugin that hangs holds up no other one.
func TestHung(t *testing.T) {
	bubble(t, func(d *desk) {
		d.plugins.answer = func(ctx context.Context, resource string) error {
			if resource == nic {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		d.offer(devicemanager.ReleasedWanted, gpu, nic)
		d.drop("a", "b", "c")
		d.is(tellsA+", "+tellsC, "a [gpu-0 gpu-1]", "b [gpu-2]")
		time.Sleep(time.Minute)
		synctest.Wait()
		d.plugins.reported = nil
		d.is("")
		if len(d.gaveUp) != 2 {
			t.Errorf("given up: %q", d.gaveUp)
		}
	})
}

// Of devices that somebody has meanwhile, who ran before that was known, the plugin is not told
// that nobody has them.
func TestHeldBySomebody(t *testing.T) {
	bubble(t, func(d *desk) {
		d.drop("a")
		d.commit(allocation.Change{Put: d.pod("adopted", gpu, "gpu-0")})
		d.offer(devicemanager.ReleasedWanted, gpu)
		d.is("team/a/uid-a [gpu-1]")
	})
}

// As long as the state cannot be written nothing counts as settled: a plugin that wants to hear of
// it may be told again, and what nobody wants to hear is tried again too. Nor is anything given
// up.
func TestUnwritten(t *testing.T) {
	for _, c := range []struct {
		wish   devicemanager.ReleasedWish
		answer error
		tells  bool
	}{
		{devicemanager.ReleasedWanted, nil, true},
		{devicemanager.ReleasedWanted, errors.New("not now"), true},
		{devicemanager.ReleasedUnwanted, nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			broken := &unwritten{state: allocation.State{PendingReleases: []allocation.PendingRelease{
				{UID: "u", Name: "a", Resource: gpu, IDs: []string{"gpu-0"}},
			}}}
			p := &plugins{inventory: devicemanager.Inventory{
				Resources: map[string]devicemanager.Resource{
					gpu: {Connected: true, Options: devicemanager.Options{Released: c.wish}},
				},
			}, answer: func(context.Context, string) error { return c.answer }}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			calls := 0
			notifier := New(Config{
				Store: broken, Plugins: p, Reassignable: func() { calls++ },
				Tell: func(_, _, _ string) { calls++ },
			})
			go func() { _ = notifier.Run(ctx) }()
			time.Sleep(patience + 10*pause + pause/2)
			synctest.Wait()
			if calls > 0 || broken.commits < 5 || c.tells != (len(p.reported) > 5) {
				t.Errorf("%v: settled %d times, written %d times, told %d times", c, calls,
					broken.commits, len(p.reported))
			}
			cancel()
			synctest.Wait()
		})
	}
}

// unwritten is a store that cannot write.
type unwritten struct {
	state   allocation.State
	commits int // that were tried
}

func (u *unwritten) State() allocation.State { return u.state }

func (u *unwritten) Commit(context.Context, ...allocation.Change) error {
	u.commits++
	return errors.New("the disk is full")
}
