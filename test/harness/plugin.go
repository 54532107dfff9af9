package harness

import (
	"context"
	"os"
	"path/filepath"

	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
)

// Plugin starts a device plugin in its own process, with a control socket, and returns a client of
// that socket. stop ends the process.
func (n *Node) Plugin(resource string, args ...string) (ctl *pluginsim.Client, stop func()) {
	n.t.Helper()
	return n.PluginNamed(pluginsim.Kind(resource), resource, args...)
}

// PluginNamed is Plugin with a name for its files, so that one resource can have several plugins;
// these also need different --socket flags.
func (n *Node) PluginNamed(name, resource string, args ...string) (
	ctl *pluginsim.Client, stop func()) {
	n.t.Helper()
	dir := filepath.Join(n.Root, "device-plugins") // the agent may not have run yet
	if err := os.MkdirAll(dir, 0o750); err != nil {
		n.t.Fatal(err)
	}
	control := filepath.Join(n.Dir, name+".ctl")
	_ = os.Remove(control) // left by an earlier process
	lab, err := Lab()
	if err != nil {
		n.t.Fatal(err)
	}
	plugin := n.start(name+".log", []string{lab}, append([]string{
		"plugin", "sim", "--resource=" + resource, "--control=" + control, "--dir=" + dir,
	}, args...)...)
	stop = plugin.Kill
	n.t.Cleanup(stop)
	ctl = pluginsim.NewClient(control)
	n.Eventually("the plugin takes orders", func() error {
		_, err := ctl.State(context.Background())
		return err
	})
	return ctl, stop
}
