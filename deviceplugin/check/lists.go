package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/topology"
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
	watched     = 3 * time.Second
	mostRepeats = 4
	mostLists   = 9
	// moment is how long what follows from an event may take.
	moment = time.Second
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
		}, run: checkFirstList, mortal: true},
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
			did:      "left the plugin alone for three seconds",
			expected: "the ListAndWatch stream stays open",
			why: "with the stream the kubelet takes the plugin for gone: all devices are " +
				"unhealthy",
			hint: "return from ListAndWatch only when its context is done",
		}, run: checkStreamStays},
		{name: "list-steady", needs: plus(listed, streamStays), words: words{
			did:      "compared the lists of those seconds",
			expected: "devices that stay as they are while nothing is done to them",
			why:      "pods on a device that turns unhealthy are told so, and may be replaced, each time",
			hint: "call a device unhealthy when that is certain, and healthy when it has been so for " +
				"a while",
		}, run: checkSteady},
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
			expected: "plain text of one line that is not empty, of at most 4096 bytes",
			why: "a device whose id cannot be used is left out, and nobody notices; ids get into " +
				"variables of containers, and often into paths",
			hint: "give every device an id of letters, digits and -_.:/",
		}, run: checkIDs},
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
		}, run: checkNodes},
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
		return asked.answers > 0 || asked.ended || b.ended()
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
	case b.ended():
		return failed("the plugin ended")
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
		if len(found) == 0 {
			return passed("those of %d devices are good", len(devices))
		}
		text := strings.Join(found, "; ")
		if ids := offenders(kind, b.list().last, b.cfg.Nodes); len(ids) > 0 {
			text += ": " + devicemanager.Few(ids)
		}
		return failed("%s", text).advising(strings.Join(advice, "; "))
	}
}

// offenders returns the ids of the devices in a message that have a flaw, each once.
func offenders(kind devicemanager.FlawKind, raw []byte, nodes topology.NodeSet) (ids []string) {
	list := &v1beta1.ListAndWatchResponse{}
	if proto.Unmarshal(raw, list) != nil {
		return nil
	}
	seen := map[string]bool{}
	for _, d := range list.GetDevices() {
		var has bool
		switch kind {
		case devicemanager.FlawTwice:
			has = seen[d.GetID()]
		case devicemanager.FlawHealth:
			has = d.GetHealth() != v1beta1.Healthy && d.GetHealth() != v1beta1.Unhealthy
		case devicemanager.FlawNode:
			has = slices.ContainsFunc(d.GetTopology().GetNodes(), func(n *v1beta1.NUMANode) bool {
				return !nodes.Has(topology.NodeID(n.GetID()))
			})
		default: // the others have no id, or are named otherwise
		}
		seen[d.GetID()] = true
		if has && !slices.Contains(ids, d.GetID()) && len(ids) < mostOffenders {
			ids = append(ids, d.GetID())
		}
	}
	return ids
}

// mostOffenders bounds the ids that are looked for.
const mostOffenders = 100

// checkNodes also says which nodes there are: authors check plugins on other machines.
func checkNodes(ctx context.Context, b *bench) outcome {
	o := checkFlaw(devicemanager.FlawNode)(ctx, b)
	if o.verdict == Failed {
		o.hint += fmt.Sprintf("; the nodes here are %s: name another machine with --topology-from "+
			"(Config.Nodes in a test)", b.cfg.Nodes)
	}
	return o
}

// checkIDs also looks for ids that are good for the agent, and break what is made of them.
func checkIDs(ctx context.Context, b *bench) outcome {
	o := checkFlaw(devicemanager.FlawID)(ctx, b)
	if o.verdict != Passed {
		return o
	}
	devices, _, _ := devicemanager.ReadList(b.list().last, b.cfg.Nodes) // it was read just now
	var broken, climbing []string
	for _, d := range devices {
		if strings.ContainsFunc(d.ID, unicode.IsControl) {
			broken = append(broken, fmt.Sprintf("%q", d.ID))
		} else if slices.Contains(strings.Split(d.ID, "/"), "..") {
			climbing = append(climbing, d.ID)
		}
	}
	switch {
	case len(broken) > 0:
		return failed("%d have line breaks or other control characters: %s", len(broken),
			devicemanager.Few(broken)).advising("use plain text of one line as ids")
	case len(climbing) > 0:
		return warned("%d have \"..\" as a part: %s", len(climbing), devicemanager.Few(climbing)).
			advising("a path that is made of such an id leads elsewhere: use names without ..")
	}
	return o
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
	before := b.heard.introductions()
	over := b.pulse.until(ctx, b.cfg.watch, func() bool {
		list = b.list()
		return list.ended && status.Code(list.err) != codes.Canceled || b.ended()
	})
	b.idle = idle{registrations: b.heard.introductions() - before, states: statesIn(list.lists)}
	if over {
		return streamEnded(ctx, b, list)
	}
	// The device manager cancels a stream when the plugin registers again, which register-pace
	// judges, and calls ListAndWatch anew.
	if b.pulse.until(ctx, moment, func() bool {
		list = b.list()
		return !list.ended || b.ended()
	}); list.ended || b.ended() {
		return streamEnded(ctx, b, list)
	}
	return passed("it did")
}

// statesIn returns the states of each device in messages of a list: its health, or "gone".
func statesIn(lists [][]byte) map[string][]string {
	out := map[string][]string{}
	for n, raw := range lists {
		list := &v1beta1.ListAndWatchResponse{}
		if proto.Unmarshal(raw, list) != nil {
			continue // another check reports it
		}
		now := map[string]string{}
		for _, d := range list.GetDevices() {
			now[d.GetID()] = d.GetHealth()
		}
		for id := range out {
			now[id] = cmp.Or(now[id], gone)
		}
		for id, state := range now {
			if was := out[id]; len(was) == 0 && n > 0 {
				out[id] = []string{gone, state}
			} else if len(was) == 0 || was[len(was)-1] != state {
				out[id] = append(was, state)
			}
		}
	}
	return out
}

// gone is the state of a device that is not listed.
const gone = "gone"

// checkSteady looks for devices that come back to a state that they left.
func checkSteady(_ context.Context, b *bench) outcome {
	var ids []string
	for id, states := range b.idle.states {
		if len(states) > 2 {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return passed("they did")
	}
	slices.SortFunc(ids, devicemanager.CompareIDs)
	return warned("%s went %s in %s, and nothing was done to them", devicemanager.Few(ids),
		strings.Join(b.idle.states[ids[0]][:min(mostStates, len(b.idle.states[ids[0]]))], ", "), b.cfg.watch)
}

// mostStates bounds the states of a device that are told.
const mostStates = 5

// streamEnded returns the outcome after a stream or the plugin has ended. It waits a moment to tell
// which: a plugin's process outlives its connections.
func streamEnded(ctx context.Context, b *bench, list call) outcome {
	b.pulse.until(ctx, moment, b.ended)
	if end := b.subject.Fate(); end != nil {
		return b.died(streamStays, end)
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
