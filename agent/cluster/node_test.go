package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/cluster/nodes"
	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
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

// The node's object begins with what the settings say.
func TestIdentityOf(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		want  nodes.Identity
	}{
		{nil, nodes.Identity{Name: "n", Labels: map[string]string{}, Attach: true}},
		{[]string{"--cloud-provider=external", "--provider-id=cloud://n", "--node-labels=rack=1",
			"--register-with-taints=new=yes:NoSchedule", "--enable-controller-attach-detach=false", "--node-ip=10.0.0.1"},
			nodes.Identity{Name: "n", Labels: map[string]string{"rack": "1"}, External: true, ProviderID: "cloud://n",
				Taints: []v1.Taint{{Key: "new", Value: "yes", Effect: v1.TaintEffectNoSchedule}}, NodeIP: "10.0.0.1"}},
	} {
		cfg, err := config.FromArgs(append(tt.flags, "--root-dir="+t.TempDir()))
		if err != nil {
			t.Fatal(err)
		}
		got := identityOf(node.Node{Identity: node.Identity{Settings: cfg, Name: "n"}})
		if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.flags, diff)
		}
	}
}
