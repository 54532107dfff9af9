package check

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

const (
	prefers         = "prefer"
	preferOffered   = "prefer-offered"
	preferOnce      = "prefer-once"
	preferWithMusts = "prefer-certain"
)

func preferenceChecks() []check {
	needs := usable()
	two := wants{plugin: true, devices: 2}
	then := func(names ...string) []string {
		return slices.Concat(needs, []string{prefers}, names)
	}
	const ignored = "such advice is not followed, and the pod gets other devices than the best; " +
		"the kubelet rejects the pod when too few remain"
	return []check{
		{name: prefers, needs: needs, wants: two, words: words{
			did:      "called GetPreferredAllocation, since the options offer it",
			expected: "an answer for one container, without an error",
			why:      "after an error the kubelet rejects the pod",
			hint:     "implement it, or do not offer it in the options",
		}, run: checkPrefer},
		{name: preferOffered, needs: then(), wants: two, words: words{
			did:      "asked for devices among some of those that are listed, in all sizes",
			expected: "devices that were on offer",
			why:      ignored,
			hint:     "choose among AvailableDeviceIDs, and not among all devices",
		}, run: checkPreferred(devicemanager.FlawForeign)},
		{name: preferOnce, needs: then(), wants: two, words: words{
			did:      "asked for devices in all sizes",
			expected: "each device once",
			why:      ignored,
			hint:     "take a device out of those that remain when it is chosen",
		}, run: checkPreferred(devicemanager.FlawRepeat)},
		{name: preferWithMusts, needs: then(preferOffered, preferOnce), wants: two, words: words{
			did:      "asked for devices beside some that the container is certain to get",
			expected: "the certain ones among them",
			why:      ignored,
			hint:     "begin with MustIncludeDeviceIDs, and count them in",
		}, run: checkPreferred(devicemanager.FlawMust)},
		{name: "prefer-size", needs: then(preferOffered, preferOnce, preferWithMusts), wants: two,
			words: words{
				did:      "asked for devices in all sizes",
				expected: "as many as AllocationSize",
				why:      ignored,
				hint:     "AllocationSize counts the certain devices too",
			}, run: checkPreferred(devicemanager.FlawSize)},
		{name: "prefer-again", needs: then(), wants: two, words: words{
			did:      "asked the same twice",
			expected: "the same answer",
			why:      "what was forecast for a pod is not what it gets",
			hint:     "sort what you iterate over; Go's maps have no order",
		}, run: checkPreferAgain},
	}
}

// questions returns requests of all kinds: some ids are not on offer, some are certain.
func questions(ids []string) (out []devicemanager.PreferredRequest) {
	offered := ids
	if len(ids) > 2 {
		offered = slices.Concat(ids[:1], ids[2:])
	}
	n := len(offered)
	sizes := []int{1, min(2, n), (n + 1) / 2, n}
	slices.Sort(sizes)
	for _, size := range slices.Compact(sizes) {
		out = append(out, devicemanager.PreferredRequest{Available: offered, Size: size})
		if size > 1 {
			out = append(out, devicemanager.PreferredRequest{
				Available: offered, MustInclude: offered[n-1:], Size: size,
			})
		}
	}
	return out
}

func checkPrefer(ctx context.Context, b *bench) outcome {
	if !b.resource().Options.Preferred {
		return skipped("the options do not offer it")
	}
	for _, q := range questions(b.healthy()) {
		began := time.Now()
		if _, err := b.plugin().prefer(ctx, q); err != nil {
			return failed("for %d of %d devices: %s", q.Size, len(q.Available), said(err))
		}
		deadline := devicemanager.DefaultDeadlines().Preferred
		switch took := time.Since(began); {
		case took > deadline:
			return failed("the answer for %d of %d devices came after %.1f s, and the agent waits for "+
				"%s: it never uses one", q.Size, len(q.Available), took.Seconds(), deadline).
				advising("choose without asking the hardware each time")
		case took > deadline/2:
			return warned("the answer for %d of %d devices came after %.1f s; pods wait so long",
				q.Size, len(q.Available), took.Seconds())
		}
	}
	return passed("it answered %d times", len(questions(b.healthy())))
}

// checkPreferred looks for one kind of flaw in all answers.
func checkPreferred(kind devicemanager.FlawKind) func(context.Context, *bench) outcome {
	return func(ctx context.Context, b *bench) outcome {
		if !b.resource().Options.Preferred {
			return skipped("the options do not offer it")
		}
		asked := questions(b.healthy())
		for _, q := range asked {
			ids, err := b.plugin().prefer(ctx, q)
			if err != nil {
				return failed("%s", said(err))
			}
			_, flaws := q.Judge(ids, b.resource())
			for _, flaw := range flaws {
				if flaw.Kind == kind {
					return failed("asked for %d of %s, with %d certain (%s), it said %s: %s",
						q.Size, devicemanager.Few(q.Available), len(q.MustInclude),
						strings.Join(q.MustInclude, ", "), devicemanager.Few(ids), flaw.Found)
				}
			}
		}
		return passed("%d answers are good", len(asked))
	}
}

func checkPreferAgain(ctx context.Context, b *bench) outcome {
	if !b.resource().Options.Preferred {
		return skipped("the options do not offer it")
	}
	ids := b.healthy()
	q := devicemanager.PreferredRequest{Available: ids, Size: (len(ids) + 1) / 2}
	first, err := b.plugin().prefer(ctx, q)
	if err != nil {
		return failed("%s", said(err))
	}
	for range 3 {
		again, err := b.plugin().prefer(ctx, q)
		if err != nil {
			return failed("%s", said(err))
		}
		slices.Sort(first)
		slices.Sort(again)
		if !slices.Equal(first, again) {
			return warned("of %s first it said %s, then %s", devicemanager.Few(ids), devicemanager.Few(first),
				devicemanager.Few(again))
		}
	}
	return passed("it was")
}
