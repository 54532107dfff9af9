package preflight

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/internal/files"
)

// maxCheckpoint bounds the device manager's file in bytes, as the agent does.
const maxCheckpoint = 256 << 20

// plugins looks for device plugins and for drivers of claims and volumes.
func (l *looking) plugins(ctx context.Context) {
	l.devicePlugins()
	l.drivers(ctx)
	if _, err := os.Stat(filepath.Join(l.cfg.RootDir, "dra_manager_state")); err == nil {
		l.add(Plugins, "resource claims", Same, "what the kubelet has prepared is taken from its dra_manager_state")
	}
}

// devicePlugins says which resources the kubelet has from plugins, and what pods hold of them.
func (l *looking) devicePlugins() {
	dir := placement.DeviceDir(l.cfg.RootDir)
	raw, err := files.Read(filepath.Join(dir, checkpoint.FileName), maxCheckpoint)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.add(Plugins, checkpoint.FileName, Changes, "%v", err)
		}
		return
	}
	held, registered, err := checkpoint.Decode(raw)
	if err != nil {
		return // takeOver says so
	}
	count := map[string]int{}
	for _, entry := range held {
		count[entry.ResourceName] += len(entry.IDs())
	}
	for _, resource := range slices.Sorted(maps.Keys(registered)) {
		if len(registered[resource]) == 0 && count[resource] == 0 {
			continue // its plugin has gone for good
		}
		l.add(Plugins, resource, Same, "%d healthy devices, %d held by pods; the plugin registers again when it "+
			"sees a new kubelet.sock", len(registered[resource]), count[resource])
	}
	if sockets, err := os.ReadDir(dir); err == nil && len(registered) > 0 && !slices.ContainsFunc(sockets,
		func(e os.DirEntry) bool { return e.Type() == os.ModeSocket && e.Name() != "kubelet.sock" }) {
		l.add(Plugins, dir, Note, "no plugin has a socket here: those that register with kubelet.sock and serve "+
			"elsewhere are not seen")
	}
}

// drivers asks those that have a socket in the registry who they are, as an agent does at its start.
func (l *looking) drivers(ctx context.Context) {
	dir := filepath.Join(l.cfg.RootDir, watcher.Registry)
	known := map[string]string{"CSIPlugin": "driver of volumes", "DRAPlugin": "driver of resource claims",
		"DevicePlugin": "device plugin"}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type() != os.ModeSocket {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		plugin, err := watcher.Ask(ctx, path, patience, nil)
		kind, is := known[plugin.Type]
		switch {
		case err != nil:
			l.add(Plugins, name, Note, "it does not answer: %v", err)
		case !is:
			l.add(Plugins, plugin.Name, Note, "it is a %q, which neither a kubelet nor numalet takes", plugin.Type)
		default:
			l.add(Plugins, plugin.Name, Same, "%s, versions %s", kind, strings.Join(plugin.Versions, ", "))
		}
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		l.add(Plugins, dir, Note, "%v", err)
	}
}
