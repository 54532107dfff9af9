package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

const registersAgain = "registers-again"

// Bounds of registrations.
const (
	// notices bounds the time in which a plugin must notice a new kubelet.sock of a running agent.
	notices = 3 * time.Second
	// mostIntroductions bounds the registrations for each made kubelet.sock.
	mostIntroductions = 3
)

func restartChecks() []check {
	needs := usable()
	then := plus(needs, registersAgain)
	plugin := wants{plugin: true}
	return []check{
		{name: registersAgain, needs: needs, wants: plugin, words: words{
			did: "restarted the device manager, which removes all sockets in its directory and " +
				"makes kubelet.sock anew",
			expected: "the plugin registers again, with a socket that is there",
			why: "after each restart of the kubelet the node has no devices until somebody " +
				"restarts the plugin",
			hint: "watch the directory (fsnotify) for kubelet.sock to be created, then make your " +
				"socket anew and register; do not only look once a minute",
		}, run: checkRegistersAgain},
		{name: "lists-again", needs: then, words: words{
			did:      "called ListAndWatch after the restart",
			expected: "the same devices at once",
			why:      "pods that run hold devices by their ids; those of others count as gone",
			hint: "send the whole list on each new stream, and make ids of what stays the same: " +
				"a goroutine of the stream before may have taken what was meant for this one",
		}, run: checkListsAgain, mortal: true},
		{name: "restart-in-calls",
			needs: plus(then, allocates, allocateAgain, cancelled, "lists-again"),
			wants: wants{plugin: true, devices: 1}, words: words{
				did: "restarted the device manager while Allocate was under way, and again " +
					"before the plugin had sent its list",
				expected: "the plugin registers, lists, and allocates",
				why:      "an agent that crashes does not wait for a good moment",
				hint:     "end what belongs to an old stream or server before the new one begins",
			}, run: checkRestartInCalls},
		{name: "unhealthy-after-restart", needs: plus(then, "unhealthy", "recovers", "lists-again"),
			wants: wants{plugin: true, devices: 1, lever: Sicken}, words: words{
				did:      "made a device sick and well again after the restarts",
				expected: "lists that say so",
				why:      "health that goes to a stream of before the restart is lost",
				hint: "keep the health of devices as state that each stream reads, not as events " +
					"in a channel that an old stream may still drain",
			}, run: checkSickAfterRestart},
		{name: "socket-made-anew", needs: then, wants: plugin, words: words{
			did:      "removed kubelet.sock while the device manager lives, which makes it again",
			expected: "the plugin registers again",
			why: "that looks like a restart of the agent; the old connection goes on here, but " +
				"who cleans the directory may have removed your socket too",
			hint: "take the creation of kubelet.sock as the sign, not the end of your own socket",
		}, run: checkSocketMadeAnew},
		{name: "register-pace", needs: needs, wants: plugin, words: words{
			did:      "counted registrations",
			expected: "one for each time that kubelet.sock was made",
			why:      "each one is a new connection and a new list, on every node",
			hint:     "register when kubelet.sock is made, and not on a timer",
		}, run: checkRegisterPace},
	}
}

func checkRegistersAgain(ctx context.Context, b *bench) outcome {
	b.before = b.healthy()
	n := b.heard.introductions()
	began := time.Now()
	if err := b.serve(); err != nil {
		return failed("%v", err)
	}
	if !b.until(ctx, func() bool { return b.heard.introductions() > n || b.ended() }) {
		return failed("nothing came in %s", b.cfg.Patience).advising(lateHint(b))
	}
	return passed("it registered after %d ms", time.Since(began).Milliseconds())
}

// lateHint returns a hint for a plugin that may only be slow.
func lateHint(b *bench) string {
	return fmt.Sprintf("watch the directory (fsnotify) for kubelet.sock to be created, then make "+
		"your socket anew and register; if the plugin looks for that less often than every %s, "+
		"check it with more patience", b.cfg.Patience)
}

func checkListsAgain(ctx context.Context, b *bench) outcome {
	if !b.until(ctx, func() bool { return len(b.missing()) == 0 && b.connected() || b.ended() }) {
		why := b.resource().Problem
		if b.connected() {
			why = "these are missing: " + devicemanager.Few(b.missing())
		}
		return failed("%s", why)
	}
	return passed("%d devices are back", len(b.healthy()))
}

func checkRestartInCalls(ctx context.Context, b *bench) outcome {
	ids := b.healthy()[:1]
	b.before = b.healthy()
	called := make(chan struct{})
	first, calls := b.manager, len(b.heard.rec.asked(byManager, allocateCall))
	go func() {
		defer b.pulse.beat()
		defer close(called)
		_, _ = first.Allocate(ctx, b.heard.resource, ids) // its agent goes away
	}()
	b.until(ctx, func() bool {
		select {
		case <-called:
			return true
		default:
			return len(b.heard.rec.asked(byManager, allocateCall)) > calls
		}
	})
	before := b.heard.introductions()
	if err := b.serve(); err != nil {
		return failed("%v", err)
	}
	<-called
	b.until(ctx, func() bool { return b.heard.introductions() > before || b.ended() })
	if err := b.serve(); err != nil {
		return failed("%v", err)
	}
	n, err := b.allocateBack(ctx, ids)
	// It may have registered with the second manager because of the first, and makes its socket
	// anew when it sees the second.
	if errors.As(err, new(*devicemanager.CallError)) &&
		b.until(ctx, func() bool { return b.heard.introductions() > n || b.ended() }) {
		_, err = b.allocateBack(ctx, ids)
	}
	if err != nil {
		return failed("for %s: %v", ids[0], err)
	}
	return passed("it did")
}

// allocateBack calls Allocate once the plugin is back. n is its number of registrations by then.
func (b *bench) allocateBack(ctx context.Context, ids []string) (n int, err error) {
	if !b.until(ctx, func() bool { return b.connected() || b.ended() }) || b.ended() {
		return 0, fmt.Errorf("it did not come back in %s: %s", b.cfg.Patience, b.resource().Problem)
	}
	n = b.heard.introductions()
	_, err = b.manager.Allocate(ctx, b.heard.resource, ids)
	return n, err
}

func checkSickAfterRestart(ctx context.Context, b *bench) outcome {
	if b.cfg.Levers[Cure] == nil {
		return skipped("nobody gave a lever %q that makes the device well again", Cure)
	}
	if o := checkSick(ctx, b); o.verdict != Passed {
		return o
	}
	return checkCured(ctx, b)
}

func checkSocketMadeAnew(ctx context.Context, b *bench) outcome {
	if who, _ := b.heard.introduction(); who.way != devicemanager.ByRegister {
		return skipped("a plugin of the plugin registry does not look for it")
	}
	n := b.heard.introductions()
	b.made++
	if err := os.Remove(filepath.Join(b.dirs.Plugins, devicemanager.SocketName)); err != nil {
		return skipped("%v", err)
	}
	if !b.pulse.until(ctx, min(b.cfg.Patience, notices), func() bool {
		return b.heard.introductions() > n || b.ended()
	}) {
		return warned("it did not in %s", min(b.cfg.Patience, notices))
	}
	return passed("it did")
}

func checkRegisterPace(_ context.Context, b *bench) outcome {
	if idle := b.idle.registrations; idle > 1 {
		return warned("it registered %d times in %s in which kubelet.sock stayed", idle, b.cfg.watch)
	}
	made := b.made
	n := b.heard.introductions()
	if n > mostIntroductions*made {
		return warned("it registered %d times, and kubelet.sock was made %d times", n, made)
	}
	return passed("it registered %d times", n)
}
