package check

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
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
	switch err := b.release(ctx); {
	case status.Code(err) == codes.Unimplemented:
		return skipped("it does not serve numalet.deviceplugin.v1.Lifecycle, which it need not")
	case err != nil:
		return failed("to the question: %s", said(err))
	}
	if _, err := b.allocate(ctx, ids); err != nil {
		return failed("to Allocate: %s", said(err))
	}
	for _, told := range []struct {
		when string
		ids  []string
	}{
		{"after Allocate", ids}, {"the second time", ids},
		{"of a device that it does not list", []string{"numalet-never-listed"}},
	} {
		if err := b.release(ctx, told.ids...); err != nil {
			return failed("%s: %s", told.when, said(err))
		}
	}
	if _, err := b.allocate(ctx, ids); err != nil {
		return failed("to Allocate after it: %s", said(err))
	}
	return passed("it was told three times")
}

// release tells the plugin that a pod which had these devices is gone.
func (b *bench) release(ctx context.Context, ids ...string) error {
	if _, err := b.client(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Patience)
	defer cancel()
	_, err := lifecyclev1.NewLifecycleClient(b.direct.conn).Released(ctx,
		&lifecyclev1.ReleasedRequest{DeviceIds: ids, Pod: &lifecyclev1.Pod{
			Namespace: "default", Name: "numalet-plugin-check", Uid: "numalet-plugin-check",
		}}, grpc.WaitForReady(true))
	return err
}
