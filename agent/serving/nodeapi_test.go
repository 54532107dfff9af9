package serving

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/placement/devices"
	"github.com/numalet/numalet/agent/serving/server"
	"github.com/numalet/numalet/internal/route"
)

// What the configuration switches off is answered with the kubelet's words, and nothing else is.
func TestSwitchableRoutes(t *testing.T) {
	const logs, query, profiles, level = "/logs/", "/logs/?query=kubelet", "/debug/pprof/", "/debug/flags/v"
	const noQuery = "node log query is disabled"
	for setting, off := range map[string]map[string]string{
		"":                               {query: noQuery},
		"enableSystemLogQuery: true":     {},
		"enableSystemLogHandler: false":  {logs: noLogs, query: noLogs},
		"enableProfilingHandler: false":  {profiles: noProfiles, query: noQuery},
		"enableDebugFlagsHandler: false": {level: noFlags, query: noQuery},
	} {
		mux := http.NewServeMux()
		for _, r := range switchable(settings(t, setting)) {
			mux.Handle(strings.TrimSpace(r.Method+" "+r.Pattern), r.Handler)
		}
		for _, path := range []string{logs, query, profiles, level} {
			answer := httptest.NewRecorder()
			mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
			body, want := answer.Body.String(), off[path]
			if strings.Contains(body, "disabled") != (want != "") || !strings.Contains(body, want) {
				t.Errorf("%q, %s: %d %q, want %q", setting, path, answer.Code, body, want)
			}
		}
	}
}

// Without authorization, the port for health has nothing else, the read-only port only what changes nothing, and the
// socket everything. A port that is 0 is not opened.
func TestPlainListeners(t *testing.T) {
	open, guarded := route.Route{Pattern: "/open"}, route.Route{Pattern: "/guarded"}
	for text, want := range map[string][]string{
		"healthzPort: 0": {"SOCKET [/open /guarded]"},
		"":               {"127.0.0.1:10248 []", "SOCKET [/open /guarded]"},
		"healthzPort: 1\nhealthzBindAddress: 127.0.0.2\nreadOnlyPort: 2\naddress: 127.0.0.3": {
			"127.0.0.2:1 []", "127.0.0.3:2 read-only [/open]", "SOCKET [/open /guarded]"},
	} {
		cfg := settings(t, text)
		cfg.RootDir = "/root-dir"
		s := &Serving{c: Config{Host: &node.Host{Node: node.Node{Identity: node.Identity{Settings: cfg}}}},
			open: []route.Route{open}, guarded: []route.Route{guarded}}
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

// settings returns the configuration of a node with this file.
func settings(t *testing.T, text string) *config.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	head := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	if err := os.WriteFile(file, []byte(head+text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set := pflag.NewFlagSet("numalet", pflag.ContinueOnError)
	flags := config.AddFlags(set)
	set.VisitAll(func(f *pflag.Flag) { f.Deprecated = "" }) // without warnings
	if err := set.Parse([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(set, flags)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
