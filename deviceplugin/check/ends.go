package check

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

func endChecks() []check {
	needs := usable()
	return []check{
		{name: "stays", needs: []string{registers}, words: words{
			did:      "looked whether the plugin went on while nothing was asked of it",
			expected: "it runs until it is told to end",
			why:      "each end takes its devices from the node until it is there again",
			hint:     "look at the end of its own log",
		}, run: checkStays},
		{name: "stops", needs: needs, wants: wants{plugin: true, start: true}, words: words{
			did:      "asked the plugin to end (SIGTERM)",
			expected: "it ends, without an error",
			why:      "its pod is killed after the grace period, and each update waits for that",
			hint:     "stop the gRPC server on SIGTERM and return from main",
		}, run: checkStops},
		{name: "socket-gone", needs: plus(needs, "stops"),
			wants: wants{start: true}, words: words{
				did:      "looked for the plugin's socket after its end",
				expected: "it is gone",
				why: "in the plugin registry the socket says that the plugin is there: the agent " +
					"goes on to call it; beside kubelet.sock it only lies about",
				hint: "stop the gRPC server, which removes it; a plugin that ends by a signal " +
					"that it does not handle leaves it",
			}, run: checkSocketGone},
		{name: "starts-after-kill", needs: needs,
			wants: wants{plugin: true, start: true, kill: true}, words: words{
				did:      "killed the plugin (SIGKILL) and started it again beside its old socket",
				expected: "it registers and lists",
				why: "a plugin that was killed for memory never comes back: address already in " +
					"use",
				hint: "remove the old socket before you listen",
			}, run: checkStartsAfterKill},
		{name: "ids-stay", needs: plus(needs, "starts-after-kill", "lists-again"),
			wants: wants{plugin: true, devices: 1, start: true, kill: true}, words: words{
				did:      "compared the ids of the devices with those of before the plugin was killed",
				expected: "the same",
				why: "pods have their devices by id: under new ids the same hardware is free, and " +
					"is given to others too",
				hint: "make ids of what stays the same, such as a serial number, a UUID or a PCI " +
					"address",
			}, run: checkIDsStay},
	}
}

func checkStays(_ context.Context, b *bench) outcome {
	all := b.deaths.others
	if end := b.subject.Fate(); end != nil && end != b.deaths.blamed {
		all, b.deaths.blamed = append(all, end), end
	}
	for _, end := range all {
		if b.deaths.in[end.Kind()] == "" {
			return failed("%s, %d times in all", end, len(all))
		}
	}
	if len(all) > 0 {
		return skipped("the plugin ended again as in %s", b.deaths.in[all[0].Kind()])
	}
	return passed("it did")
}

func checkStops(_ context.Context, b *bench) outcome {
	if !b.subject.Stop(b.cfg.Patience) {
		return failed("it still ran after %s", b.cfg.Patience)
	}
	end := b.subject.Fate()
	var exit *exec.ExitError
	switch {
	case end == nil || end.err == nil:
		return passed("it did")
	case errors.As(end.err, &exit) && signalled(exit):
		return passed("the signal ended it")
	}
	return warned("%s", end)
}

func signalled(exit *exec.ExitError) bool {
	state, ok := exit.Sys().(syscall.WaitStatus)
	return ok && state.Signaled() && state.Signal() == syscall.SIGTERM
}

func checkSocketGone(_ context.Context, b *bench) outcome {
	who, _ := b.heard.introduction()
	if _, err := os.Lstat(who.endpoint); err != nil {
		return passed("it is")
	}
	if who.way == devicemanager.ByRegistry {
		return failed("it is still there: %s", who.endpoint)
	}
	return warned("it is still there: %s", who.endpoint)
}

func checkStartsAfterKill(ctx context.Context, b *bench) outcome {
	b.before = b.healthy()
	b.subject.Kill()
	b.until(ctx, func() bool { return !b.connected() })
	n := b.heard.introductions()
	if err := b.subject.Start(b.dirs); err != nil {
		return failed("%v", err)
	}
	b.until(ctx, func() bool { return b.ended() || b.heard.introductions() > n && b.connected() })
	if end := b.subject.Fate(); end != nil {
		return failed("%s", end)
	}
	if !b.connected() {
		return failed("it did not come back in %s: %s", b.cfg.Patience, b.resource().Problem)
	}
	return passed("it did")
}

// checkIDsStay fails only if no id is left: a single device may have gone meanwhile.
func checkIDsStay(ctx context.Context, b *bench) outcome {
	if len(b.before) >= many {
		return skipped("the devices were made many, and are few again")
	}
	stayed := func() bool { return len(b.missing()) < len(b.before) }
	if len(b.before) > 0 && !b.pulse.until(ctx, min(b.cfg.Patience, notices), stayed) {
		return failed("it listed %s, and now %s", devicemanager.Few(b.before),
			devicemanager.Few(b.healthy()))
	}
	return passed("they are")
}
