package serving

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/claims"
	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/route"
)

// Without authorization, the port for health has nothing else, the read-only port only what changes nothing, and the
// socket everything. What a listener answers is listed at its root. A port that is 0 is not opened.
func TestPlainListeners(t *testing.T) {
	routes := func(pattern string) []route.Route { return []route.Route{{Pattern: pattern}} }
	for text, want := range map[string][]string{
		"healthzPort: 0": {"SOCKET [/open /guarded /inside /{$}]"},
		"":               {"127.0.0.1:10248 []", "SOCKET [/open /guarded /inside /{$}]"},
		"healthzPort: 1\nhealthzBindAddress: 127.0.0.2\nreadOnlyPort: 2\naddress: 127.0.0.3": {
			"127.0.0.2:1 []", "127.0.0.3:2 read-only [/open /{$}]", "SOCKET [/open /guarded /inside /{$}]"},
	} {
		cfg := settings(t, text)
		cfg.RootDir = "/root-dir"
		s := &Serving{c: Config{Host: &node.Host{Node: node.Node{Identity: node.Identity{Settings: cfg}}}},
			open: routes("/open"), guarded: routes("/guarded"), inside: routes("/inside")}
		var got []string
		for _, l := range s.plain().Listeners {
			patterns := []string{}
			for _, r := range l.Routes {
				patterns = append(patterns, r.Pattern)
			}
			address := strings.ReplaceAll(l.Address, filepath.Join("/root-dir", devices.Socket), "SOCKET")
			if l.Type == server.ReadOnly {
				address += " read-only"
			}
			got = append(got, fmt.Sprint(address, " ", patterns))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// Monitoring agents hear of resource claims only in a cluster, and of free CPUs only under a policy that hands them
// out.
func TestPodResourcesSnapshot(t *testing.T) {
	for _, tt := range []struct {
		policy    string
		clustered bool
	}{{"static", true}, {"static", false}, {"none", true}} {
		cfg := settings(t, "cpuManagerPolicy: "+tt.policy+"\nreservedSystemCPUs: '0'")
		cfg.TopologyFrom, cfg.RootDir = "fixture:laptop", t.TempDir()
		hardware, err := machine.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		plugins, err := devicemanager.New(devicemanager.Config{Dirs: devicemanager.Dirs{Plugins: t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		s := &Serving{c: Config{
			Host: &node.Host{Node: node.Node{Identity: node.Identity{Settings: cfg, Hardware: hardware}}},
			Pods: &pods.Pods{Statuses: &pods.Statuses{Store: podstatus.New(podstatus.Config{})}},
			Placement: &placement.Placement{
				Config:  placement.Config{Store: store.Fixed(allocation.State{})},
				Plugins: plugins, Offered: new(mailbox.Topic),
			},
		}}
		if tt.clustered {
			s.c.Placement.Claims.Manager = new(claims.Manager)
		}
		got := s.podResources().Snapshot()
		if (got.Claims != nil) != tt.clustered || got.CPUs.IsEmpty() != (tt.policy == "none") {
			t.Errorf("%+v: claims are known: %t, free are CPUs %s", tt, got.Claims != nil, got.CPUs)
		}
	}
}
