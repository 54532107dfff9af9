package check

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

const (
	firstList   = "first-list"
	usableIDs   = "ids"
	streamStays = "stream-stays"
)

// Bounds of a list of devices.
const (
	// kubeletList is the longest list in bytes that the kubelet reads: gRPC's default.
	kubeletList = 4 << 20
	// watched is how long an idle plugin is observed; in that time it may repeat its list
	// mostRepeats times, and send mostLists lists in all.
	watched     = time.Second
	mostRepeats = 2
	mostLists   = 6
)

// usable returns the checks without which the devices are unknown.
func usable() []string {
	return []string{registers, "version", "resource-name", "endpoint", reachable, optionsKnown,
		firstList, usableIDs, streamStays}
}

func listChecks() []check {
	before := usable()[:6]
	listed := plus(before, firstList)
	stream := []check{
		{name: firstList, needs: before, words: words{
			did:      "called ListAndWatch",
			expected: "a list of devices at once",
			why: "until the first list the resource is not on the node, and pods that ask for it " +
				"are refused",
			hint: "send the list as it is when ListAndWatch is called, before waiting for changes",
		}, run: checkFirstList},
		{name: "devices", needs: listed, words: words{
			did:      "looked for healthy devices in the list",
			expected: "at least one",
			why:      "without devices most of a plugin cannot be checked",
			hint:     "is the hardware there? Give the plugin a way to invent devices for tests",
		}, run: checkDevices},
		{name: "list-size", needs: listed, words: words{
			did:      "measured the list",
			expected: "at most 4 MiB",
			why:      "the kubelet cannot read a longer one, and the resource has no devices",
			hint:     "list fewer devices, or shorter ids",
		}, run: checkListSize},
		{name: streamStays, needs: listed, words: words{
			did:      "left the plugin alone for a second",
			expected: "the ListAndWatch stream stays open",
			why: "with the stream the kubelet takes the plugin for gone: all devices are " +
				"unhealthy",
			hint: "return from ListAndWatch only when its context is done",
		}, run: checkStreamStays},
		{name: "list-pace", needs: plus(listed, streamStays), words: words{
			did:      "counted how often the plugin says the same meanwhile",
			expected: "a list when something has changed, or every few seconds",
			why:      "the agent reads and compares the whole list each time, on every node",
			hint:     "send the list again only when a device has changed",
		}, run: checkListPace},
	}
	return slices.Concat(stream[:2], deviceChecks(listed), stream[2:])
}

// deviceChecks check what a list says of each device.
func deviceChecks(listed []string) []check {
	return []check{
		{name: usableIDs, needs: listed, words: words{
			did:      "looked at the ids of the devices",
			expected: "plain text that is not empty, of at most 4096 bytes",
			why:      "a device whose id cannot be used is left out, and nobody notices",
			hint:     "give every device an id",
		}, run: checkFlaw(devicemanager.FlawID)},
		{name: "unique-ids", needs: listed, words: words{
			did:      "looked for ids that come again",
			expected: "each id once",
			why:      "devices of one id count once: the node has fewer than the plugin thinks",
			hint:     "list each id once",
		}, run: checkFlaw(devicemanager.FlawTwice)},
		{name: "health-words", needs: listed, words: words{
			did:      "looked at the health of the devices",
			expected: `"Healthy" or "Unhealthy", with capitals`,
			why:      "every other word counts as unhealthy, and the device is never given out",
			hint:     "use the constants Healthy and Unhealthy of v1beta1",
		}, run: checkFlaw(devicemanager.FlawHealth)},
		{name: "numa-nodes", needs: listed, words: words{
			did:      "compared the NUMA nodes of the devices with the machine's",
			expected: "nodes that exist, and no topology for a device that is near none",
			why: "a node that does not exist, -1 for example, is no place: under the policies " +
				"restricted and single-numa-node pods are refused for it",
			hint: "name the device's numa_node as sysfs has it, and no topology where that is -1",
		}, run: checkFlaw(devicemanager.FlawNode)},
		{name: "empty-topology", needs: listed, words: words{
			did:      "looked for devices with a topology that names no node",
			expected: "no topology at all for a device that is near no node",
			why:      "podresources does not list such a device, so monitoring does not see it",
			hint:     "leave Topology nil",
		}, run: checkEmptyTopology},
	}
}

// list returns the device manager's newest ListAndWatch call, with its last list.
func (b *bench) list() call {
	asked, _ := b.heard.called(listCall)
	return asked
}

func checkFirstList(ctx context.Context, b *bench) outcome {
	var asked call
	b.until(ctx, func() bool {
		asked = b.list()
		return asked.answers > 0 || asked.ended
	})
	switch {
	case asked.answers > 0:
		devices, _, err := devicemanager.ReadList(asked.last, b.cfg.Nodes)
		if err != nil {
			return failed("%v", err)
		}
		return passed("%d devices came", len(devices))
	case asked.ended && asked.err == nil:
		return failed("the stream ended without a list")
	case asked.ended && status.Code(asked.err) != codes.Canceled: // Canceled: our own deadline
		return failed("%s", said(asked.err))
	}
	return failed("no list came in %s", b.cfg.Patience)
}

func checkDevices(ctx context.Context, b *bench) outcome {
	if b.pulse.until(ctx, min(b.cfg.Patience, 2*time.Second), func() bool {
		return len(b.healthy()) > 0
	}) {
		return passed("%d of %d devices are healthy", len(b.healthy()), len(b.resource().Devices))
	}
	return warned("none of %d devices is healthy", len(b.resource().Devices))
}

// checkFlaw checks the list for one kind of flaw.
func checkFlaw(kind devicemanager.FlawKind) func(context.Context, *bench) outcome {
	return func(_ context.Context, b *bench) outcome {
		devices, flaws, err := devicemanager.ReadList(b.list().last, b.cfg.Nodes)
		if err != nil {
			return failed("%v", err)
		}
		var found, advice []string
		for _, flaw := range flaws {
			if flaw.Kind == kind {
				found, advice = append(found, flaw.Found), append(advice, flaw.Advice)
			}
		}
		if len(found) > 0 {
			return failed("%s", strings.Join(found, "; ")).advising(strings.Join(advice, "; "))
		}
		return passed("those of %d devices are good", len(devices))
	}
}

func checkEmptyTopology(_ context.Context, b *bench) outcome {
	var ids []string
	for _, d := range b.resource().Devices {
		if d.NoNodes {
			ids = append(ids, d.ID)
		}
	}
	if len(ids) > 0 {
		return warned("%d devices have one: %s", len(ids), devicemanager.Few(ids))
	}
	return passed("there are none")
}

func checkListSize(_ context.Context, b *bench) outcome {
	if size := len(b.list().last); size > kubeletList {
		return failed("it has %d bytes", size)
	}
	return passed("it has %d bytes", len(b.list().last))
}

func checkStreamStays(ctx context.Context, b *bench) outcome {
	var list call
	if b.pulse.until(ctx, watched, func() bool {
		list = b.list()
		return list.ended && status.Code(list.err) != codes.Canceled || b.ended()
	}) {
		return streamEnded(ctx, b, list)
	}
	// The device manager cancels a stream when the plugin registers again, which register-pace
	// judges, and calls ListAndWatch anew.
	if b.pulse.until(ctx, watched, func() bool {
		list = b.list()
		return !list.ended || b.ended()
	}); list.ended || b.ended() {
		return streamEnded(ctx, b, list)
	}
	return passed("it did")
}

// streamEnded returns the outcome after a stream or the plugin has ended. It waits a moment to tell
// which: a plugin's process outlives its connections.
func streamEnded(ctx context.Context, b *bench, list call) outcome {
	b.pulse.until(ctx, watched, b.ended)
	if end := b.subject.Fate(); end != nil {
		b.deaths.blamed = end
		return failed("%s", end)
	}
	if problem := b.resource().Problem; problem != "" {
		return failed("%s", problem)
	}
	if list.err != nil {
		return failed("it ended its ListAndWatch stream: %s", said(list.err))
	}
	return failed("it ended its ListAndWatch stream")
}

func checkListPace(_ context.Context, b *bench) outcome {
	list := b.list()
	if list.repeats > mostRepeats {
		return warned("%d lists in %.1f s said what the one before said", list.repeats,
			time.Since(list.began).Seconds())
	}
	if list.answers > mostLists {
		return warned("%d lists came in %.1f s, and nothing was done to the devices", list.answers,
			time.Since(list.began).Seconds()).advising("send the list again only when a device has " +
			"changed, and the devices in an order that stays")
	}
	return passed("%d lists came in all", list.answers)
}
