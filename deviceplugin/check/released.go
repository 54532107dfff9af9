package check

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const hearsReleased = "released"

func releasedChecks() []check {
	needs := plus(usable(), allocates, allocateAgain, allocateReused)
	return []check{
		{name: hearsReleased, needs: needs, wants: wants{plugin: true, devices: 1}, words: words{
			did: "told the plugin, which serves numalet.deviceplugin.v1.Lifecycle, twice that a " +
				"device is released, once of a device that it does not list, and allocated the first " +
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
	switch err := b.plugin().release(ctx); {
	case status.Code(err) == codes.Unimplemented:
		return skipped("it does not serve numalet.deviceplugin.v1.Lifecycle, which it need not")
	case err != nil:
		return failed("to the question: %s", said(err))
	}
	if _, err := b.plugin().allocate(ctx, ids); err != nil {
		return failed("to Allocate: %s", said(err))
	}
	for _, one := range []struct {
		when string
		ids  []string
	}{
		{"after Allocate", ids}, {"the second time", ids},
		{"of a device that it does not list", []string{"numalet-never-listed"}},
	} {
		if err := b.plugin().release(ctx, one.ids...); err != nil {
			return failed("%s: %s", one.when, said(err))
		}
	}
	if _, err := b.plugin().allocate(ctx, ids); err != nil {
		return failed("to Allocate after it: %s", said(err))
	}
	return passed("it was told three times")
}
