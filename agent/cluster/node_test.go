package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/numalet/numalet/agent/cluster/nodes"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/deviceplugin/recall"
)

// A root directory is fresh until an agent or a kubelet has left there what it knew of device plugins.
func TestIsFresh(t *testing.T) {
	empty := t.TempDir()
	if !isFresh(empty) || !isFresh(filepath.Join(empty, "none")) {
		t.Error("an empty directory is not fresh")
	}
	for _, name := range []string{recall.FileName, nodes.OwnedFile,
		filepath.Join(filepath.Base(placement.DeviceDir("/")), checkpoint.FileName)} {
		root := t.TempDir()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if isFresh(root) {
			t.Errorf("a directory with %s is fresh", name)
		}
	}
}
