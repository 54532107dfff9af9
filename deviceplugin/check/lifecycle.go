package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
	"github.com/numalet/numalet/topology"
)

const (
	hearsReleased = "released"
	hasReasons    = "reasons"
	hasPlaces     = "places"
)

func lifecycleChecks() []check {
	needs := plus(usable(), allocates, allocateAgain, allocateReused)
	return []check{
		{name: hasReasons, needs: usable(), wants: wants{plugin: true}, words: words{
			did: "asked the plugin, which serves Reasons of numalet.deviceplugin.v1.Lifecycle, without " +
				"devices, and why devices are unhealthy",
			expected: "success within a second, and lines for devices that were asked about",
			why: "the agent waits for a second; later answers are lost, and events and statuses of pods " +
				"do not say why a device failed",
			hint: "answer from what is known, without asking the hardware",
		}, run: checkReasons},
		{name: hasPlaces, needs: usable(), wants: wants{plugin: true}, words: words{
			did: "asked the plugin, which serves Places of numalet.deviceplugin.v1.Lifecycle, without " +
				"devices, and where all devices are",
			expected: "success within a second, and PCI addresses such as 0000:3b:00.0 for devices that " +
				"were asked about",
			why: "the list of devices waits for a second; without places a container may get a GPU and " +
				"a NIC far from each other",
			hint: "name the address of the PCI function as sysfs has it, and leave out devices that are " +
				"none",
		}, run: checkPlaces},
		{name: hearsReleased, needs: needs, wants: wants{plugin: true, devices: 1}, words: words{
			did: "told the plugin, which serves Released of numalet.deviceplugin.v1.Lifecycle, twice " +
				"that a device is released, once of a device that it does not list, and allocated the first " +
				"again",
			expected: "success each time, and to a request without devices, which is a question",
			why: "it is told at least once, also after it or the agent was away; until it answers " +
				"with success nobody is given the device, for 30 s",
			hint: "undo what Allocate did if it is there to be undone, and answer with success if " +
				"there is nothing",
		}, run: checkReleased},
	}
}

func checkReleased(ctx context.Context, b *bench) outcome {
	ids := b.healthy()[:1]
	began := time.Now()
	err := b.plugin().release(ctx)
	deadline := devicemanager.DefaultDeadlines().Lifecycle
	switch took := time.Since(began); {
	case status.Code(err) == codes.Unimplemented:
		return skipped("it does not serve Released, which it need not")
	case err != nil:
		return failed("to the question: %s", said(err))
	case took > deadline:
		return failed("the answer to the question came after %.1f s, and the agent waits for %s: it "+
			"does not tell the plugin of released devices", took.Seconds(), deadline)
	}
	if _, err := b.plugin().allocate(ctx, ids); err != nil {
		return failed("to Allocate of %s: %s", ids[0], said(err))
	}
	for _, one := range []struct {
		when string
		ids  []string
	}{
		{"after Allocate", ids}, {"the second time", ids},
		{"of a device that it does not list", []string{neverListed}},
	} {
		if err := b.plugin().release(ctx, one.ids...); err != nil {
			return failed("%s, of %s: %s", one.when, one.ids[0], said(err))
		}
	}
	if _, err := b.plugin().allocate(ctx, ids); err != nil {
		return failed("to Allocate of %s after it: %s", ids[0], said(err))
	}
	return passed("it was told three times")
}

// asked calls a method of the second service twice: with the question whether it is served, and
// with another one. bad is the outcome if the answers do not come, or too late; else nil.
func asked[Q, A any](ctx context.Context, d *direct, name string,
	method func(lifecyclev1.LifecycleClient, context.Context, *Q, ...grpc.CallOption) (*A, error),
	question *Q) (answer *A, bad *outcome) {
	for _, q := range []*Q{new(Q), question} {
		began := time.Now()
		var err error
		answer, err = askService(ctx, d, lifecyclev1.NewLifecycleClient, method, q)
		var o outcome
		switch took := time.Since(began); {
		case q != question && status.Code(err) == codes.Unimplemented:
			o = skipped("it does not serve %s, which it need not", name)
		case err != nil:
			o = failed("%s: %s", whichQuestion(q == question), said(err))
		case took > devicemanager.QuestionDeadline:
			o = failed("%s: the answer came after %.1f s, and the agent waits for %s",
				whichQuestion(q == question), took.Seconds(), devicemanager.QuestionDeadline)
		default:
			continue
		}
		return nil, &o
	}
	return answer, nil
}

func whichQuestion(withDevices bool) string {
	if withDevices {
		return "asked about devices"
	}
	return "asked without devices, whether it serves that"
}

// strangers returns the devices of an answer that were not asked about.
func strangers[V any](answer map[string]V, asked []string) (ids []string) {
	for id := range answer {
		if !slices.Contains(asked, id) {
			ids = append(ids, fmt.Sprintf("%q", id))
		}
	}
	slices.Sort(ids)
	return ids
}

// neverListed is the id of no device.
const neverListed = "numalet-never-listed"

const notAskedAbout = "it speaks of devices that it was not asked about: %s"

// Bounds of the questions, which are the agent's.
const (
	mostReasons   = 256
	mostPlaces    = 1 << 14
	longestReason = 1 << 10
)

func checkReasons(ctx context.Context, b *bench) outcome {
	ids, sick := []string{neverListed}, 0
	for _, d := range b.resource().Devices {
		if !d.Healthy && len(ids) < mostReasons {
			ids, sick = append(ids, d.ID), sick+1
		}
	}
	answer, bad := asked(ctx, b.plugin(), "Reasons", lifecyclev1.LifecycleClient.Reasons,
		&lifecyclev1.ReasonsRequest{DeviceIds: ids})
	if bad != nil {
		return *bad
	}
	reasons := answer.GetReasons()
	if odd := strangers(reasons, ids); len(odd) > 0 {
		return failed(notAskedAbout, devicemanager.Few(odd))
	}
	for _, id := range ids {
		if n := len(reasons[id]); n > longestReason {
			return warned("the reason of %q has %d bytes; it is cut at %d", id, n, longestReason)
		}
		if strings.Contains(reasons[id], "\n") {
			return warned("the reason of %q has several lines, and is shown in one", id)
		}
	}
	return passed("it gave reasons for %d of %d unhealthy devices", len(reasons), sick)
}

func checkPlaces(ctx context.Context, b *bench) outcome {
	var ids []string
	for _, d := range b.resource().Devices {
		if len(ids) < mostPlaces {
			ids = append(ids, d.ID)
		}
	}
	answer, bad := asked(ctx, b.plugin(), "Places", lifecyclev1.LifecycleClient.Places,
		&lifecyclev1.PlacesRequest{DeviceIds: ids})
	if bad != nil {
		return *bad
	}
	places := answer.GetPlaces()
	if odd := strangers(places, ids); len(odd) > 0 {
		return failed(notAskedAbout, devicemanager.Few(odd))
	}
	for _, id := range ids {
		place, told := places[id]
		if _, ok := topology.ParsePCIAddress(place.GetPciAddress()); told && !ok {
			return failed("the place of %q is %q, which is no PCI address", id, place.GetPciAddress())
		}
	}
	return passed("it gave the places of %d of %d devices", len(places), len(ids))
}
