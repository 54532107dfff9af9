package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// TestPluginRegistry: a plugin that serves its socket in plugins_registry and does not use
// kubelet.sock provides devices to pods. It is there again after a restart of either side.
func TestPluginRegistry(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	registry := "--registry-dir=" + filepath.Join(n.Root, "plugins_registry")
	ctl, stop := n.Plugin("example.com/gpu", "--devices=4", registry)
	n.Pod("first", limited("first", "cpu: 1, example.com/gpu: 1"))
	n.AwaitPhase("first-node", v1.PodRunning)
	socket := filepath.Join(n.Root, "plugins_registry", "example.com_gpu.sock")
	if _, err := os.Stat(socket); err != nil {
		t.Fatalf("the plugin's socket is elsewhere: %v", err)
	}

	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Eventually("the plugin is registered again", func() error {
		state, err := ctl.State(t.Context())
		if err == nil && state.Registered < 2 {
			err = fmt.Errorf("it was registered %d times", state.Registered)
		}
		return err
	})
	n.Pod("second", limited("second", "cpu: 1, example.com/gpu: 1"))
	n.AwaitPhase("second-node", v1.PodRunning)

	stop() // as if killed: the socket's file stays
	n.Plugin("example.com/gpu", "--devices=4", registry)
	n.Pod("third", limited("third", "cpu: 1, example.com/gpu: 1"))
	n.AwaitPhase("third-node", v1.PodRunning)

	held := map[string]string{}
	for name, row := range placements(t, n) {
		for _, id := range row.Devices["example.com/gpu"] {
			if held[id] != "" {
				t.Errorf("%s is held by %s and %s", id, held[id], name)
			}
			held[id] = name
		}
	}
	if len(held) != 3 {
		t.Errorf("devices are held by %v", held)
	}
}
