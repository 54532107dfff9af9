package dracheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/await"
)

// looks is the pause between looks for the driver's socket.
const looks = 50 * time.Millisecond

// own is a driver that the checks start, in a directory of its own.
type own struct {
	cfg     Config
	process *check.Process
	dirs    check.Dirs
	socket  string // in the plugin registry
	stop    func() // of what the node serves
}

// begin starts the driver and waits for its socket.
func begin(ctx context.Context, cfg Config) (*own, error) {
	dir, err := os.MkdirTemp("", "npc") // short, since sockets lie below it
	if err != nil {
		return nil, err
	}
	command := strings.ReplaceAll(cfg.Command, "{root}", dir)
	o := &own{cfg: cfg, process: check.NewProcess(command, cfg.Output), dirs: check.Dirs{
		Plugins: filepath.Join(dir, "plugins"), Registry: filepath.Join(dir, "plugins_registry")}}
	o.stop, err = ServeNoPods(dir)
	err = errors.Join(err, os.Mkdir(o.dirs.Plugins, 0o750), os.Mkdir(o.dirs.Registry, 0o750))
	if err == nil {
		err = o.start(ctx)
	}
	if err != nil {
		o.end()
		return nil, err
	}
	return o, nil
}

// start starts the driver, unless it runs, and waits until it says who it is.
func (o *own) start(ctx context.Context) error {
	if err := o.process.Start(o.dirs); err != nil {
		return err
	}
	for late := time.Now().Add(o.cfg.Patience); ; {
		path, err := Find(ctx, o.dirs.Registry, o.cfg.Driver)
		if err == nil {
			o.socket = path
			return nil
		}
		if end := o.process.Fate(); end != nil {
			return fmt.Errorf("the driver was started and did not register: %s", end)
		}
		if time.Now().After(late) {
			return fmt.Errorf("the driver was started and did not register within %s: %w",
				o.cfg.Patience, err)
		}
		if !await.For(ctx, looks) {
			return ctx.Err()
		}
	}
}

// end kills the driver and removes its directory.
func (o *own) end() {
	o.process.Kill()
	if o.stop != nil {
		o.stop()
	}
	_ = os.RemoveAll(filepath.Dir(o.dirs.Plugins)) // ours, and below the directory of such
}

// deaths record how a driver ended by itself.
type deaths struct {
	blamed *check.Ending     // the last one that a check reported
	in     map[string]string // the check in which it first ended in that way
}

// dying is how long a driver may take to end after the check in which it dies.
const dying = 300 * time.Millisecond

// ready makes sure that the driver runs and is in a known state. One that runs already is only asked
// whether it still answers.
func (b *bench) ready(ctx context.Context) error {
	if b.lost != nil || !b.spoilt && (b.own == nil || b.own.process.Fate() == nil) {
		return b.lost
	}
	b.spoilt = false
	if b.own == nil {
		if _, err := watcher.Ask(ctx, b.cfg.Socket, b.cfg.Patience, b.heard); err != nil {
			b.lost = fmt.Errorf("the driver does not answer any more: %w", err)
		}
	} else if err := b.again(ctx); err != nil {
		b.lost = fmt.Errorf("the driver does not come back: %w", err)
	}
	return b.lost
}

// again starts the driver anew.
func (b *bench) again(ctx context.Context) error {
	b.own.process.Kill()
	if err := b.own.start(ctx); err != nil {
		return err
	}
	again, err := watcher.Ask(ctx, b.own.socket, b.cfg.Patience, b.heard)
	if err != nil {
		return fmt.Errorf("after its restart it does not say who it is: %w", err)
	}
	b.plugin = again
	if b.node == nil {
		return nil
	}
	return b.connect(ctx)
}

// untimely changes the result of a check in which the driver ended by itself. A driver that ends in
// the same way again has one fault, and fails one check.
func (b *bench) untimely(ctx context.Context, c entry, r *check.Result) {
	if b.own == nil || c.starts {
		return
	}
	for late := time.Now().Add(dying); r.Verdict == check.Failed && b.own.process.Fate() == nil &&
		time.Now().Before(late) && await.For(ctx, looks); {
	}
	end := b.own.process.Fate()
	if end == nil || end == b.deaths.blamed {
		return
	}
	b.deaths.blamed = end
	if before := b.deaths.in[end.Kind()]; before != "" {
		r.Verdict, r.Happened = check.Skipped, "the driver ended again as in "+before
		return
	}
	b.deaths.in[end.Kind()] = c.Name
	r.Verdict, r.Happened = check.Failed, end.String()
	r.Hint = "look for a panic or an exit in the driver's own log: whatever it is asked, it should " +
		"answer with an error and go on"
}

// checkRestarts kills the driver and starts it again.
func checkRestarts(ctx context.Context, b *bench) error {
	if err := b.again(ctx); err != nil {
		return err
	}
	return checkAgain(ctx, b)
}

// stops is how often a driver is asked to end: some remove their socket most times.
const stops = 3

// checkStops asks the driver to end.
func checkStops(ctx context.Context, b *bench) error {
	left := 0
	for i := range stops {
		if i > 0 {
			if err := b.own.start(ctx); err != nil {
				return err
			}
		}
		b.hangUp()
		if end := b.own.process.Fate(); end != nil {
			return fmt.Errorf("before it was asked to: %s", end)
		}
		if !b.own.process.Stop(b.cfg.Patience) {
			return fmt.Errorf("it did not end within %s of SIGTERM", b.cfg.Patience)
		}
		if _, err := os.Lstat(b.own.socket); err == nil {
			left++
		}
	}
	if left == 0 {
		return nil
	}
	return warning{fmt.Errorf("it ended and left %s behind, %d of %d times, which the agent asks again and again",
		b.own.socket, left, stops)}
}
