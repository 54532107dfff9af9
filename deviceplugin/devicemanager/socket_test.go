package devicemanager

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/scratch"
)

func TestRegistrationSocketRemoved(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	plugin.untilRegistered(1)
	for i := range 3 {
		if err := os.Remove(filepath.Join(r.dir, SocketName)); err != nil {
			t.Fatal(err)
		}
		plugin.untilRegistered(i + 2)
		r.untilConnected(gpu)
	}
	r.stop()
	if _, err := os.Lstat(filepath.Join(r.dir, SocketName)); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// An empty DEPRECATION is a leftover of earlier versions; any other file of that name stays.
func TestLeftDeprecationIsRemoved(t *testing.T) {
	for name, tt := range map[string]struct {
		leave func(path string) error
		stays bool
	}{
		"empty": {leave: func(path string) error { return os.WriteFile(path, nil, 0o600) }},
		"text": {stays: true, leave: func(path string) error {
			return os.WriteFile(path, []byte("mine"), 0o600)
		}},
		"directory": {stays: true, leave: func(path string) error { return os.Mkdir(path, 0o700) }},
		"pipe":      {stays: true, leave: func(path string) error { return unix.Mkfifo(path, 0o600) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := scratch.Dir(t)
			path := filepath.Join(dir, deprecationName)
			if err := tt.leave(path); err != nil {
				t.Fatal(err)
			}
			newRig(t, Config{Dirs: Dirs{Plugins: dir, Registry: scratch.Dir(t)}})
			if _, err := os.Lstat(path); os.IsNotExist(err) == tt.stays {
				t.Errorf("afterwards there is: %v", err)
			}
		})
	}
}

func TestPluginDirectoryRemoved(t *testing.T) {
	r := newRig(t, Config{})
	if err := os.RemoveAll(r.dir); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a registration to be taken", func() bool {
		return registerWith(t, r.dir, v1beta1.Version, "a.sock", gpu) == nil
	})
}

func TestAnotherAgentsSocketIsLeftAlone(t *testing.T) {
	r := newRig(t, Config{})
	path := filepath.Join(r.dir, SocketName)
	other, err := net.Listen("unix", path+".other")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := os.Rename(path+".other", path); err != nil {
		t.Fatal(err)
	}
	before, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	after, err := os.Lstat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the other's socket was touched: %v", err)
	}
}
