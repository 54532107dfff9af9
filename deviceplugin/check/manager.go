package check

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/stats"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/watcher"
)

// manager is a running device manager.
type manager struct {
	*devicemanager.Plugins
	cancel context.CancelFunc
	done   chan error
}

// serve starts a new device manager, as a restarted agent does.
func (b *bench) serve() error { return b.serveAs(false) }

// serveAs starts a new device manager; a strict one refuses plugins that it cannot reach while they
// register.
func (b *bench) serveAs(strict bool) error {
	b.stopServing()
	patience := b.cfg.Patience
	plugins, err := devicemanager.New(devicemanager.Config{
		Dirs: b.dirs, NodeIDs: b.cfg.Nodes, Strict: strict,
		Graces: devicemanager.Graces{Capacity: time.Hour},
		Deadlines: devicemanager.Deadlines{
			Dial: patience, Options: patience, FirstList: patience, Preferred: patience,
			Allocate: patience, PreStart: patience, Released: patience,
			Registry: watcher.Deadlines{Dial: patience, Info: patience, Notify: patience},
		},
		Changed: b.pulse.beat,
		Stats: func(socket string) stats.Handler {
			return b.heard.rec.handler(byManager, socket)
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	done := make(chan error, 1)
	go func() { done <- plugins.Run(ctx) }()
	select {
	case <-plugins.Ready():
	case err := <-done:
		cancel()
		return fmt.Errorf("serve device plugins in %s: %w", b.dirs.Plugins, err)
	}
	b.manager = &manager{plugins, cancel, done}
	b.made++
	b.heard.rec.note("--- the device manager serves " + devicemanager.SocketName)
	return nil
}

// stopServing ends the device manager, if one runs.
func (b *bench) stopServing() {
	if b.manager == nil {
		return
	}
	b.manager.cancel()
	text := "--- the device manager has ended"
	if err := <-b.manager.done; err != nil { // not the plugin's fault
		text += ": " + err.Error()
	}
	b.manager = nil
	b.heard.rec.note(text)
}
