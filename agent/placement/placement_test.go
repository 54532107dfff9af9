package placement

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
)

// placed is the floor of a node with these flags, on a simulated runtime, with the events of the node.
func placed(t *testing.T, flags ...string) (*Placement, *told) {
	t.Helper()
	identity, err := node.Identify(configured(t, flags...))
	if err != nil {
		t.Fatal(err)
	}
	events := new(told)
	host := &node.Host{Node: node.Node{Identity: identity, Events: events}}
	host.Client = simtest.Connect(t, simtest.Start(t, crisim.Config{}))
	return &Placement{Config: Config{Host: host}}, events
}

// A state that cannot be used is moved aside, and the node tells it.
func TestDamagedStore(t *testing.T) {
	p, events := placed(t)
	for _, damaged := range []bool{false, true} {
		if damaged {
			if err := os.WriteFile(filepath.Join(p.Settings.RootDir, store.FileName), []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if s, err := OpenStore(t.Context(), p.Node); s == nil || err != nil {
			t.Fatal(err)
		}
		if told := len(events.of) == 1 && strings.HasPrefix(events.of[0], store.ReasonQuarantined); told != damaged {
			t.Errorf("damaged: %t, events are %q", damaged, events.of)
		}
	}
}

// A list of devices that is too long is an event of the node.
func TestRefusedList(t *testing.T) {
	p, events := placed(t)
	p.refused(devicemanager.RefusedList{Resource: "example.com/gpu", Socket: "/s", Limit: 3})
	if len(events.of) != 1 || !strings.HasPrefix(events.of[0], "DevicePluginListRefused Device plugin on s:") {
		t.Errorf("events are %q", events.of)
	}
}

// Memory is kept for higher QoS classes only with the gate.
func TestQOSReserved(t *testing.T) {
	for gates, want := range map[string]int64{"QOSReserved=true": 50, "": 0} {
		p, _ := placed(t, "--qos-reserved=memory=50%", "--feature-gates="+gates)
		if got, err := p.qosReserved(); got != want || err != nil {
			t.Errorf("gates %q: %d, %v, want %d", gates, got, err, want)
		}
	}
}

// Records of claims that cannot be used, ours or the kubelet's, are moved aside, and the node tells it.
func TestClaimsThatWereLost(t *testing.T) {
	for file, want := range map[string]string{
		"": "", claims.FileName: "ResourceClaimsQuarantined", claims.KubeletFile: "ResourceClaimsQuarantined",
	} {
		p, events := placed(t)
		p.Cluster = &Cluster{Object: func() *v1.Node { return nil }}
		var err error
		if p.Drivers, err = newDrivers(t.Context(), p.Node); err != nil {
			t.Fatal(err)
		}
		if file != "" {
			path := filepath.Join(p.Settings.RootDir, file)
			if err := os.WriteFile(path, []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.claims(t.Context()); err != nil {
			t.Fatal(err)
		}
		var reasons []string
		for _, text := range events.of {
			reasons = append(reasons, strings.Fields(text)[0])
		}
		if got := strings.Join(slices.Compact(reasons), " "); got != want {
			t.Errorf("%s is damaged: events are %q", file, events.of)
		}
	}
}
