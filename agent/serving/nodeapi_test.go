package serving

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/addresses"
	"github.com/numalet/numalet/agent/node/config"
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
			if strings.Contains(body, "disabled") != (want != "") || !strings.Contains(body, want) ||
				strings.HasPrefix(body, "404 page not found") {
				t.Errorf("%q, %s: %d %q, want %q", setting, path, answer.Code, body, want)
			}
		}
	}
}

// The node API has a certificate of its own unless both files of another are named, or a cluster signs one. The page
// of its patterns has each once.
func TestCertificateOfNodeAPI(t *testing.T) {
	for _, text := range []string{"", "tlsCertFile: /none", "tlsPrivateKeyFile: /none", "serverTLSBootstrap: true"} {
		cfg := settings(t, text)
		cfg.Cluster.CertDir = t.TempDir()
		s := &Serving{c: Config{Host: &node.Host{Node: node.Node{Identity: node.Identity{Settings: cfg, Name: "n"}},
			Addresses: addresses.New(t.Context(), addresses.Config{Node: "n", Standalone: true})}}}
		if _, err := s.certificate(t.Context()); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if made, err := os.ReadDir(cfg.Cluster.CertDir); err != nil || len(made) == 0 {
			t.Errorf("%q: no certificate was made: %v", text, err)
		}
	}
	got := patterns([]route.Route{{Pattern: "/pods"}, {Pattern: "/{$}"}, {Pattern: "/pods"}})
	if want := []string{"/", "/healthz", "/pods"}; !slices.Equal(got, want) {
		t.Errorf("the patterns are %q, want %q", got, want)
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
