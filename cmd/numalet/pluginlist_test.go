package main

import (
	"strings"
	"testing"
)

// Each plugin has a line with its socket, its devices, the calls to it, and the last error.
func TestPluginList(t *testing.T) {
	address := agentWith(t, map[string]string{"/plugins": `[
		{"resource": "a.com/gpu", "endpoint": "/d/gpu.sock", "way": "Register", "devices": 8,
		 "healthy": 7, "calls": {"ListAndWatch": {"all": 1}, "Allocate": {"all": 4, "failed": 1}},
		 "lastError": "Allocate: no luck", "lastErrorAt": "2026-01-01T00:00:00Z"},
		{"resource": "a.com/nic", "problem": "no plugin has registered since the agent started"}
	]`, "/drivers": `[
		{"name": "cpu.b.com", "awaySince": "2026-01-01T00:00:00Z"},
		{"name": "gpu.b.com", "instances": [
			{"endpoint": "/p/old.sock", "service": "v1beta1.DRAPlugin", "problem": "refused"},
			{"endpoint": "/p/new.sock", "service": "v1.DRAPlugin", "connected": true, "called": true,
			 "healthService": "v1.DRAResourceHealth"}],
		 "calls": {"NodePrepareResources": {"all": 3, "failed": 1, "lastSeconds": 0.0123}},
		 "lastError": "NodePrepareResources: no", "lastErrorAt": "2026-01-01T00:00:00Z"}
	]`, "/csidrivers": `[
		{"name": "gone.c.com"},
		{"name": "disk.c.com", "registered": true, "endpoint": "/p/csi.sock", "version": "1.5.0", "nodeID": "i-1",
		 "maxVolumes": 8, "calls": {"NodePublishVolume": {"all": 3, "failed": 1}},
		 "lastError": "NodePublishVolume: busy", "lastErrorAt": "2026-01-01T00:00:00Z"}
	]`})
	out, err := run(t, "plugin", "list", "--server", address)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out, "\n")
	for at, want := range [][]string{
		{"RESOURCE", "LAST ERROR"},
		{"a.com/gpu", " gpu.sock ", " Register ", " 7 of 8 ", " connected ",
			"Allocate 4 (1 failed), ListAndWatch 1", " ago: Allocate: no luck"},
		{"a.com/nic", " - ", " 0 of 0 ", "no plugin has registered since the agent started"},
		{""},
		{"DRA DRIVER", "SERVICE"},
		{"cpu.b.com", "no plugin is registered", " - "},
		{"gpu.b.com", " old.sock ", " v1beta1.DRAPlugin ", " refused ",
			"NodePrepareResources 3 (1 failed), the last in 12ms", " ago: NodePrepareResources: no"},
		{"gpu.b.com", " new.sock ", " v1.DRAPlugin ", "v1.DRAResourceHealth", "connected, called"},
		{""},
		{"CSI DRIVER", "NODE ID"},
		{"gone.c.com", " not registered "},
		{"disk.c.com", " csi.sock ", " 1.5.0 ", " i-1 ", " at most 8 ", " registered ",
			"NodePublishVolume 3 (1 failed)", " ago: NodePublishVolume: busy"},
	} {
		for _, text := range want {
			if !strings.Contains(lines[at], text) {
				t.Errorf("line %d has no %q: %s", at, text, lines[at])
			}
		}
	}
	out, err = run(t, "plugin", "list", "--server", address, "-o", "json")
	if err != nil || !strings.Contains(out, `"healthy": 7`) || !strings.Contains(out, `"cpu.b.com"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// Wrong flags are reported before anything starts.
func TestPluginCheckFlags(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"", "start the plugin with --exec COMMAND"},
		{"--exec true --dir /tmp", "use --exec to start a plugin in a directory of its own"},
		{"--exec true --lever bend", "write NAME=COMMAND, where NAME is one of [sicken cure"},
		{"--exec true --out /nowhere/x", "/nowhere/x"},
		{"--exce true", "did you mean --exec?"},
	} {
		args := append([]string{"plugin", "check"}, strings.Fields(tc.args)...)
		if _, err := run(t, args...); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.args, err, tc.want)
		}
	}
}
