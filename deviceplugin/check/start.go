package check

import "context"

func startChecks() []check {
	needs := plus(usable(), allocates, allocateAgain)
	one := wants{plugin: true, devices: 1}
	const prestart = "pre-start"
	return []check{
		{name: prestart, needs: needs, wants: one, words: words{
			did:      "called PreStartContainer after Allocate, since the options ask for it",
			expected: "an answer",
			why:      "the container is not started after an error, and tried again and again",
			hint:     "implement it, or do not ask for it in the options",
		}, run: checkPreStart(1)},
		{name: "pre-start-again", needs: plus(needs, prestart), wants: one,
			words: words{
				did:      "called PreStartContainer again for the same devices",
				expected: "an answer",
				why:      "a container that crashes is started again, without another Allocate",
				hint:     "reset the device each time, whatever its state",
			}, run: checkPreStart(2)},
	}
}

// checkPreStart allocates a device and starts a container so many times.
func checkPreStart(times int) func(context.Context, *bench) outcome {
	return func(ctx context.Context, b *bench) outcome {
		if !b.resource().Options.PreStart {
			return skipped("the options do not ask for it")
		}
		ids := b.healthy()[:1]
		if _, err := b.manager.Allocate(ctx, b.heard.resource, ids); err != nil {
			return failed("for %s: %v", ids[0], err)
		}
		for range times {
			if err := b.manager.PreStart(ctx, b.heard.resource, ids); err != nil {
				return failed("for %s: %v", ids[0], err)
			}
		}
		return passed("it answered")
	}
}
