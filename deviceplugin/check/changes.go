package check

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// many is the number of devices that Multiply makes.
const many = 100_000

func changeChecks() []check {
	needs := usable()
	return []check{
		{name: "unhealthy", needs: needs, wants: wants{plugin: true, devices: 1, lever: Sicken},
			words: words{
				did:      "made a device sick and waited for the list",
				expected: "a list in which a device is Unhealthy that was Healthy",
				why:      "pods go on to be placed on broken hardware, and fail there",
				hint:     "send the whole list again on each change, on the stream that is open",
			}, run: checkSick},
		{name: "recovers", needs: plus(needs, "unhealthy"), wants: wants{plugin: true, lever: Cure},
			words: words{
				did:      "made the device well again and waited for the list",
				expected: "a list in which it is Healthy again",
				why:      "it is lost to the node until the plugin is restarted",
				hint: "look at hardware again that was found unhealthy, and say so when it is " +
					"well",
			}, run: checkCured},
		{name: "vanishes", needs: plus(needs, "unhealthy"), wants: wants{plugin: true, devices: 1, lever: Vanish},
			words: words{
				did:      "took a device away and waited for the list",
				expected: "a list without it",
				why:      "the device is given out and is not there",
				hint:     "list only what is there, or list it as Unhealthy",
			}, run: checkVanished},
		{name: "returns", needs: plus(needs, "unhealthy", "vanishes"), wants: wants{plugin: true, lever: Return},
			words: words{
				did:      "brought the device back and waited for the list",
				expected: "a list with it, healthy, under its id",
				why:      "it is lost to the node until the plugin is restarted",
				hint:     "make ids of what stays the same, such as a serial number or a UUID",
			}, run: checkReturned},
	}
}

// scaleChecks come late: the many devices stay.
func scaleChecks() []check {
	needs := plus(usable(), allocates, allocateAgain, prefers, "unhealthy", "vanishes")
	return []check{
		{name: "many", needs: needs, wants: wants{plugin: true, lever: Multiply},
			words: words{
				did: "made it 100,000 devices, asked for a preference among them and allocated " +
					"one",
				expected: "a list of them, and answers in time",
				why: "shared devices are listed once for each share; the calls have deadlines, " +
					"and the kubelet reads at most 4 MiB",
				hint: "no loop over all devices inside a loop over all devices",
			}, run: checkMany},
	}
}

// pull pulls a lever and waits for a condition. still says what is wrong while it does not hold.
func (b *bench) pull(ctx context.Context, lever Lever, holds func() bool, still func() string) (
	bool, outcome) {
	before, elsewhere := b.heard.lists(), b.elsewhere()
	b.heard.rec.Note("--- lever " + string(lever))
	hurry, cancel := context.WithTimeout(ctx, max(b.cfg.Patience, time.Second))
	defer cancel()
	if err := b.cfg.Levers[lever](hurry); err != nil {
		return false, skipped("the lever %s did not work: %v", lever, err)
	}
	if !b.until(ctx, func() bool { return holds() || b.ended() }) || b.ended() {
		if other := changedOf(elsewhere, b.elsewhere()); other != "" && !b.ended() {
			return false, skipped("the lever %s changed devices of %s", lever, other)
		}
		switch n := b.heard.lists() - before; n {
		case 0:
			return false, failed("no list came in %s, and %s", b.cfg.Patience, still())
		case 1:
			return false, failed("a list came, and %s after %s", still(), b.cfg.Patience)
		default:
			return false, failed("%d lists came, and %s after %s", n, still(), b.cfg.Patience)
		}
	}
	return true, outcome{}
}

// elsewhere returns the devices of the plugin's other resources.
func (b *bench) elsewhere() map[string][]*devicemanager.Device {
	out := map[string][]*devicemanager.Device{}
	if b.manager == nil {
		return out
	}
	for name, r := range b.manager.Inventory().Resources {
		if name != b.heard.resource {
			out[name] = r.Devices
		}
	}
	return out
}

// changedOf returns the first resource whose devices have changed; "": none has.
func changedOf(before, after map[string][]*devicemanager.Device) string {
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if !slices.EqualFunc(before[name], after[name],
			func(x, y *devicemanager.Device) bool { return *x == *y }) {
			return name
		}
	}
	return ""
}

// unchanged says that no device changed that was healthy before.
func (b *bench) unchanged() string {
	return "these still counted as healthy: " + devicemanager.Few(b.before)
}

// missing returns the devices that were healthy before and are not healthy now.
func (b *bench) missing() []string {
	return b.lost(func(d *devicemanager.Device) bool { return d.Healthy })
}

// unlisted returns the devices that were healthy before and are not listed now.
func (b *bench) unlisted() []string {
	return b.lost(func(*devicemanager.Device) bool { return true })
}

func (b *bench) lost(still func(*devicemanager.Device) bool) []string {
	now := map[string]bool{}
	for _, d := range b.resource().Devices {
		now[d.ID] = still(d)
	}
	return slices.DeleteFunc(slices.Clone(b.before), func(id string) bool { return now[id] })
}

func checkSick(ctx context.Context, b *bench) outcome {
	b.before = b.healthy()
	if done, o := b.pull(ctx, Sicken, func() bool { return len(b.missing()) > 0 }, b.unchanged); !done {
		return o
	}
	if gone := b.unlisted(); len(gone) > 0 && len(gone) < len(b.missing()) {
		return failed("%s are not in the list any more", devicemanager.Few(gone)).advising(
			"send all devices each time, also those that have not changed: a list takes the place " +
				"of the one before")
	}
	return passed("%s", devicemanager.Few(b.missing()))
}

func checkCured(ctx context.Context, b *bench) outcome {
	done, o := b.pull(ctx, Cure, func() bool {
		return len(b.missing()) == 0 && len(b.healthy()) > 0
	}, func() string { return "these are not healthy: " + devicemanager.Few(b.missing()) })
	if !done {
		return o
	}
	return passed("all devices are healthy again")
}

func checkVanished(ctx context.Context, b *bench) outcome {
	b.before = b.healthy()
	if done, o := b.pull(ctx, Vanish, func() bool { return len(b.missing()) > 0 }, b.unchanged); !done {
		return o
	}
	return passed("%s", devicemanager.Few(b.missing()))
}

func checkReturned(ctx context.Context, b *bench) outcome {
	done, o := b.pull(ctx, Return, func() bool {
		return len(b.missing()) == 0 && len(b.healthy()) > 0
	}, func() string { return "these are not back: " + devicemanager.Few(b.missing()) })
	if !done {
		return o
	}
	return passed("all devices are back")
}

func checkMany(ctx context.Context, b *bench) outcome {
	began := time.Now()
	done, o := b.pull(ctx, Multiply, func() bool { return len(b.resource().Devices) >= many },
		func() string { return fmt.Sprintf("there were %d devices", len(b.resource().Devices)) })
	if !done {
		return o
	}
	listed := time.Since(began)
	ids := b.healthy()
	if len(ids) == 0 {
		return skipped("none of them is healthy")
	}
	began = time.Now()
	if b.resource().Options.Preferred {
		q := devicemanager.PreferredRequest{Available: ids, Size: min(8, len(ids))}
		if _, err := b.plugin().prefer(ctx, q); err != nil {
			return failed("%s of %d devices: %s", preferredCall, len(ids), said(err))
		}
	}
	preferred := time.Since(began)
	if _, err := b.plugin().allocate(ctx, ids[len(ids)-1:]); err != nil {
		return failed("%s of one of %d devices: %s", allocateCall, len(ids), said(err))
	}
	if size := len(b.list().last); size > kubeletList {
		return warned("the list has %d bytes, and the kubelet reads at most %d", size, kubeletList)
	}
	return passed("they were listed after %d ms, a preference took %d ms", listed.Milliseconds(),
		preferred.Milliseconds())
}
