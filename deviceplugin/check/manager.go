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

// host is the side of the node: the device manager that serves a plugin, and what was heard of
// both.
type host struct {
	cfg     Config
	dirs    Dirs
	pulse   *pulse
	heard   heard
	manager *manager // nil: none runs
	made    int      // how often kubelet.sock was made
}

// serve starts a new device manager, as a restarted agent does.
func (h *host) serve() error { return h.serveAs(false) }

// serveAs starts a new device manager; a strict one refuses plugins that it cannot reach while they
// register.
func (h *host) serveAs(strict bool) error {
	h.stopServing()
	patience := h.cfg.Patience
	plugins, err := devicemanager.New(devicemanager.Config{
		Dirs: h.dirs, NodeIDs: h.cfg.Nodes, Strict: strict,
		Graces: devicemanager.Graces{Capacity: time.Hour},
		Deadlines: devicemanager.Deadlines{
			Dial: patience, Options: patience, FirstList: patience, Preferred: patience,
			Lifecycle: min(patience/2, devicemanager.DefaultDeadlines().Lifecycle),
			Allocate:  patience, PreStart: patience, Released: patience,
			Registry: watcher.Deadlines{Dial: patience, Info: patience, Notify: patience},
		},
		Changed: h.pulse.beat,
		Stats: func(socket string) stats.Handler {
			return h.heard.rec.handler(byManager, socket)
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
		return fmt.Errorf("serve device plugins in %s: %w", h.dirs.Plugins, err)
	}
	h.manager = &manager{plugins, cancel, done}
	h.made++
	h.heard.rec.Note("--- the device manager serves " + devicemanager.SocketName)
	return nil
}

// stopServing ends the device manager, if one runs.
func (h *host) stopServing() {
	if h.manager == nil {
		return
	}
	h.manager.cancel()
	text := "--- the device manager has ended"
	if err := <-h.manager.done; err != nil { // not the plugin's fault
		text += ": " + err.Error()
	}
	h.manager = nil
	h.heard.rec.Note(text)
}

// resource returns the device manager's view of the plugin's resource.
func (h *host) resource() devicemanager.Resource {
	if h.manager == nil {
		return devicemanager.Resource{}
	}
	return h.manager.Inventory().Resources[h.heard.resource]
}

func (h *host) connected() bool { return h.resource().Connected }

// healthy returns the ids of the healthy devices, in natural order.
func (h *host) healthy() (ids []string) {
	for _, d := range h.resource().Devices {
		if d.Healthy {
			ids = append(ids, d.ID)
		}
	}
	return ids
}

// until waits for a condition, for at most Patience.
func (h *host) until(ctx context.Context, holds func() bool) bool {
	return h.pulse.until(ctx, h.cfg.Patience, holds)
}
