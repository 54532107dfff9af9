package check

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/oneline"
)

const (
	allocates      = "allocate"
	allocateAgain  = "allocate-again"
	allocateReused = "allocate-reused"
	cancelled      = "cancelled"
)

// Bounds of calls to Allocate.
const (
	slow         = 5 * time.Second // above this it is a warning
	mostParallel = 8
	// They come after 1 ms, 2 ms, 4 ms and so on.
	cancellations = 7
)

func allocationChecks() []check {
	first := usable()
	again := plus(first, allocates)
	reused := plus(again, allocateAgain)
	then := plus(reused, allocateReused)
	one, two := wants{plugin: true, devices: 1}, wants{plugin: true, devices: 2}
	ordinary := []check{
		{name: allocates, needs: first, wants: one, words: words{
			did:      "called Allocate for one healthy device, as for a container",
			expected: "an answer for one container",
			why:      "a pod whose devices cannot be allocated is rejected",
			hint:     "answer with one ContainerAllocateResponse for each container request",
		}, run: checkAllocate},
		{name: allocateAgain, needs: again, wants: one, words: words{
			did:      "called Allocate again with the same ids",
			expected: "the same answer",
			why: "nobody tells a plugin when a pod ends: after it, after a reboot or a crash of " +
				"the agent the same devices are allocated anew",
			hint: "keep no account of what was allocated, and make the answer from the ids alone",
		}, run: checkAllocateAgain},
		{name: allocateReused, needs: reused, wants: two, words: words{
			did:      "called Allocate for devices of which one was allocated with others before",
			expected: "an answer",
			why:      "the container that had it is gone, and the plugin was not told",
			hint:     "keep no account of what was allocated",
		}, run: checkAllocateReused},
		{name: "answer", needs: then, wants: one, words: words{
			did:      "looked at what the container is to get",
			expected: "absolute paths, permissions of r, w and m, qualified CDI names",
			why: "the runtime refuses the container, again and again, and the pod hangs in " +
				"creation",
			hint: "give paths from the root, permissions such as rw, and CDI devices as " +
				"vendor.com/class=name",
		}, run: checkAnswer},
		{name: "allocate-all", needs: then, wants: two, words: words{
			did:      "called Allocate for all healthy devices at once",
			expected: "an answer",
			why:      "a pod may ask for all devices of a node",
			hint:     "set no limit on the ids of a request",
		}, run: checkAllocateAll},
		{name: "several-devices", needs: plus(then, "answer"), wants: two, words: words{
			did:      "called Allocate for two devices, and for each of them alone",
			expected: "another answer than for one, with a place for each",
			why:      "a container that asks for two devices gets one, and nobody notices",
			hint: "make the answer in a loop over DevicesIds; two devices at one path in the " +
				"container are one",
		}, run: checkSeveral},
	}
	return slices.Concat(ordinary, oddAllocationChecks(then), parallelChecks(then))
}

// oddAllocationChecks make calls that no agent should make.
func oddAllocationChecks(then []string) []check {
	one, two := wants{plugin: true, devices: 1}, wants{plugin: true, devices: 2}
	return []check{
		{name: "repeated-id", needs: then, wants: one, words: words{
			did:      "called Allocate with one id twice, then once",
			expected: "an answer or an error, and then an answer",
			why:      "a plugin that stops at odd ids takes the devices of all pods with it",
			hint:     "answer with an error, codes.InvalidArgument",
		}, run: checkOdd(func(ids []string) []string { return []string{ids[0], ids[0]} }, Passed)},
		{name: "unlisted-id", needs: plus(then, "repeated-id"), wants: one, words: words{
			did:      "called Allocate with an id that was never listed, then with one that was",
			expected: "an error, and then an answer",
			why: "the device may have vanished a moment ago; without an error the container " +
				"starts without it",
			hint: "look ids up, and answer with an error for those that are not there",
		}, run: checkOdd(func([]string) []string { return []string{neverListed} },
			Warning)},
		{name: "no-ids", needs: plus(then, "repeated-id", "unlisted-id"), wants: one, words: words{
			did:      "called Allocate for a container without ids, then with one",
			expected: "an answer or an error, and then an answer",
			why:      "a plugin that stops at odd requests takes the devices of all pods with it",
			hint:     "do not take the first of the ids before you have looked how many there are",
		}, run: checkOdd(func([]string) []string { return nil }, Passed)},
		{name: "two-containers", needs: then, wants: two, words: words{
			did:      "called Allocate with requests for two containers",
			expected: "two answers, each what the container gets alone",
			why: "the API has a list of requests, and the answers are told apart by their " +
				"place",
			hint: "make an answer in a loop over ContainerRequests",
		}, run: checkTwoContainers},
	}
}

// parallelChecks make several calls at a time.
func parallelChecks(then []string) []check {
	return []check{
		{name: "parallel", needs: then, wants: wants{plugin: true, devices: 2}, words: words{
			did:      "called Allocate for several pods at the same time",
			expected: "each gets the answer that it gets alone",
			why: "pods start at the same time; a wrong answer gives a pod another one's " +
				"devices",
			hint: "keep nothing of a call in fields that calls share; run the plugin with " +
				"-race",
		}, run: checkParallel},
		{name: cancelled, needs: plus(then, "repeated-id", "unlisted-id", "no-ids"), wants: wants{plugin: true, devices: 1}, words: words{
			did:      "cancelled calls of Allocate, then made one",
			expected: "an answer to the one",
			why: "a pod may be deleted while it starts; a lock that stays held hangs all later " +
				"pods",
			hint: "unlock with defer, and never send on a channel without looking at the " +
				"context",
		}, run: checkCancelled},
	}
}

// said returns an error of the plugin in one line.
func said(err error) string {
	s := status.Convert(err)
	return fmt.Sprintf("%s: %s", s.Code(), oneline.Of(s.Message()))
}

// checkAllocate calls Allocate as for a pod, through the device manager.
func checkAllocate(ctx context.Context, b *bench) outcome {
	began, ids := time.Now(), b.healthy()[:1]
	_, err := b.manager.Allocate(ctx, b.heard.resource, ids)
	took := time.Since(began)
	switch {
	case err != nil:
		return failed("for %s: %s", ids[0], oneline.Of(err.Error()))
	case took > slow:
		return warned("the answer for %s came after %.1f s; the pod waits so long", ids[0],
			took.Seconds())
	}
	return passed("the answer came after %d ms", took.Milliseconds())
}

func checkAnswer(ctx context.Context, b *bench) outcome {
	ids := b.healthy()[:1]
	resp, err := b.plugin().allocate(ctx, ids)
	if err != nil {
		return failed("for %s: %s", ids[0], said(err))
	}
	var flaws, odd []string
	for _, a := range resp.GetContainerResponses() {
		flaws = append(flaws, devicemanager.AnswerFlaws(a)...)
		odd = append(odd, devicemanager.AnswerOddities(a)...)
	}
	if flaws = append(flaws, noNodes(resp)...); len(flaws) > 0 {
		return failed("for %s: %s", ids[0], oneline.Of(strings.Join(flaws, "; ")))
	}
	var dirs []string
	for _, dir := range b.cfg.CDI {
		dirs = append(dirs, placed(dir, b.dirs))
	}
	unknown, err := unknownCDI(resp, dirs)
	if err != nil {
		return skipped("%v", err)
	}
	if len(unknown) > 0 {
		return failed("for %s: no CDI file in %s has %s", ids[0], strings.Join(dirs, " or "),
			devicemanager.Few(unknown)).advising("write the CDI file before you answer; if it is in " +
			"another directory, name that with --cdi-dir (Config.CDI in a test)")
	}
	if len(odd) > 0 {
		return warned("for %s: %s", ids[0], oneline.Of(strings.Join(odd, "; ")))
	}
	if absent := absent(resp); len(absent) > 0 {
		return warned("for %s: this machine does not have %s", ids[0], devicemanager.Few(absent))
	}
	return passed("%s", contents(resp))
}

// contents counts the parts of an answer.
func contents(resp *v1beta1.AllocateResponse) string {
	var envs, mounts, devices, annotations, cdi int
	for _, a := range resp.GetContainerResponses() {
		envs, mounts = envs+len(a.GetEnvs()), mounts+len(a.GetMounts())
		devices, cdi = devices+len(a.GetDevices()), cdi+len(a.GetCdiDevices())
		annotations += len(a.GetAnnotations())
	}
	return fmt.Sprintf("%d variables, %d mounts, %d devices, %d CDI devices, %d annotations", envs,
		mounts, devices, cdi, annotations)
}

func checkAllocateAll(ctx context.Context, b *bench) outcome {
	ids := b.healthy()
	if _, err := b.manager.Allocate(ctx, b.heard.resource, ids); err != nil {
		return failed("of %d devices: %s", len(ids), oneline.Of(err.Error()))
	}
	return passed("%d devices were allocated", len(ids))
}

func checkAllocateAgain(ctx context.Context, b *bench) outcome {
	ids := b.healthy()[:1]
	first, err := b.plugin().allocate(ctx, ids)
	if err != nil {
		return failed("for %s, the second time: %s", ids[0], said(err))
	}
	second, err := b.plugin().allocate(ctx, ids)
	if err != nil {
		return failed("for %s, the third time: %s", ids[0], said(err))
	}
	if !sameAnswer(first, second) {
		return warned("for %s it answered first {%s}, then {%s}", ids[0], oneline.Cut(first.String(), 256),
			oneline.Cut(second.String(), 256))
	}
	return passed("it was")
}

func checkAllocateReused(ctx context.Context, b *bench) outcome {
	ids := b.healthy()
	for _, these := range [][]string{ids[:2], ids[1:2], ids[:1]} {
		if _, err := b.plugin().allocate(ctx, these); err != nil {
			return failed("for %s: %s", devicemanager.Few(these), said(err))
		}
	}
	return passed("there was one each time")
}

// checkOdd calls Allocate with ids that no agent should send; an answer without error gives the
// verdict answered.
func checkOdd(odd func(ids []string) []string, answered Verdict) func(
	context.Context, *bench) outcome {
	return func(ctx context.Context, b *bench) outcome {
		ids := b.healthy()
		_, refused := b.plugin().allocate(ctx, odd(ids))
		if status.Code(refused) == codes.DeadlineExceeded {
			return failed("no answer came in %s", b.cfg.Patience)
		}
		if _, err := b.plugin().allocate(ctx, ids[:1]); err != nil {
			return failed("it said (%s) to that, and to the one after, for %s: %s", said(refused),
				ids[0], said(err))
		}
		if refused == nil {
			return outcome{verdict: answered, happened: "it answered as if nothing were wrong"}
		}
		return passed("it said %s", said(refused))
	}
}

func checkCancelled(ctx context.Context, b *bench) outcome {
	ids := b.healthy()[:1]
	for i := range cancellations {
		hurried, cancel := context.WithTimeout(ctx, time.Millisecond<<i)
		_, _ = b.plugin().allocate(hurried, ids) // any outcome is fine
		cancel()
	}
	if _, err := b.plugin().allocate(ctx, ids); err != nil {
		return failed("for %s: %s", ids[0], said(err))
	}
	return passed("it came")
}
