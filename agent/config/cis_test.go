package config

import (
	"testing"
)

// TestCISBenchmark: with a configuration file that says nothing, the rules of the CIS Kubernetes
// Benchmark for the kubelet's settings hold, as far as a default can keep them.
func TestCISBenchmark(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"k.yaml": head})
	c := mustLoad(t, dir, "--config=%dir%/k.yaml")
	k := &c.Kubelet
	for rule, holds := range map[string]bool{
		"4.2.1 strangers are not let in":            !*k.Authentication.Anonymous.Enabled,
		"4.2.2 not everybody may do all":            k.Authorization.Mode == "Webhook",
		"4.2.4 the read-only port is off":           k.ReadOnlyPort == 0,
		"4.2.5 streams do not idle for ever":        k.StreamingConnectionIdleTimeout.Duration > 0,
		"4.2.6 the host's packet filter is kept":    *k.MakeIPTablesUtilChains,
		"4.2.7 the host's name is the node's":       c.HostnameOverride == "",
		"4.2.8 events are limited":                  *k.EventRecordQPS > 0,
		"4.2.11 serving certificates can be signed": c.Gates.Enabled("RotateKubeletServerCertificate"),
		"profiling asks for rights":                 *k.Authentication.Webhook.Enabled,
	} {
		if !holds {
			t.Errorf("rule %s does not hold by default", rule)
		}
	}
}

// What the log and the node API show of the command line and the file has no credentials.
func TestShownWithoutCredentials(t *testing.T) {
	c := mustLoad(t, "", "--manifest-url-header", "Authorization:Bearer secret", "--root-dir=/x")
	if got := c.Flags()["manifest-url-header"]; got != masked {
		t.Errorf("the flag is shown as %q", got)
	}
	if got := c.Flags()["root-dir"]; got != "/x" {
		t.Errorf("root-dir is shown as %q", got)
	}
	if got := c.Shown().StaticPodURLHeader["Authorization"]; len(got) != 1 || got[0] != masked {
		t.Errorf("the field is shown as %q", got)
	}
	if got := c.Kubelet.StaticPodURLHeader["Authorization"]; got[0] != "Bearer secret" {
		t.Errorf("the agent itself has %q", got)
	}
}
