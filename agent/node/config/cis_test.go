package config

import (
	"slices"
	"testing"
)

// TestCISBenchmark: with an empty configuration file, the kubelet's rules of the CIS Kubernetes
// Benchmark hold as far as defaults can satisfy them.
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
		"4.2.7 the host's name is the node's":       c.Node.HostnameOverride == "",
		"4.2.8 events are limited":                  *k.EventRecordQPS > 0,
		"4.2.11 serving certificates can be signed": c.Gates.Enabled("RotateKubeletServerCertificate"),
		"profiling asks for rights":                 *k.Authentication.Webhook.Enabled,
	} {
		if !holds {
			t.Errorf("rule %s does not hold by default", rule)
		}
	}
}

// hardened holds the settings that the benchmark asks an administrator to make.
const hardened = `
authentication: {anonymous: {enabled: false}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: Webhook}
readOnlyPort: 0
streamingConnectionIdleTimeout: 5m
makeIPTablesUtilChains: true
eventRecordQPS: 5
tlsCertFile: /etc/kubernetes/pki/kubelet.crt
tlsPrivateKeyFile: /etc/kubernetes/pki/kubelet.key
rotateCertificates: true
tlsCipherSuites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
  TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384]
podPidsLimit: 4096
seccompDefault: true
featureGates: {RotateKubeletServerCertificate: true}
`

// TestCISHardened: the settings of the rules 4.2.1 to 4.2.14 are accepted and have an effect.
func TestCISHardened(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"k.yaml": head + hardened})
	c := mustLoad(t, dir, "--config=%dir%/k.yaml")
	if without := c.Unhonoured(); len(without) > 0 {
		t.Errorf("these have no effect: %q", without)
	}
	k := &c.Kubelet
	for rule, holds := range map[string]bool{
		"4.2.3 the client CA":             k.Authentication.X509.ClientCAFile != "",
		"4.2.9 the server's certificate":  k.TLSCertFile != "" && k.TLSPrivateKeyFile != "",
		"4.2.10 certificates are renewed": k.RotateCertificates,
		"4.2.12 strong ciphers only":      len(k.TLSCipherSuites) == 4,
		"4.2.13 processes are limited":    *k.PodPidsLimit == 4096,
		"4.2.14 seccomp by default":       *k.SeccompDefault,
	} {
		if !holds {
			t.Errorf("rule %s is not kept", rule)
		}
	}
}

// The command line and file, as shown in the log and the node API, contain no credentials.
func TestShownWithoutCredentials(t *testing.T) {
	c := mustLoad(t, "", "--manifest-url-header",
		"Authorization:Bearer secret,X-Two:a,X-Two:b", "--root-dir=/x")
	if got := c.Flags()["manifest-url-header"]; got != masked {
		t.Errorf("the flag is shown as %q", got)
	}
	if got := c.Flags()["root-dir"]; got != "/x" {
		t.Errorf("root-dir is shown as %q", got)
	}
	if got := c.Shown().StaticPodURLHeader["Authorization"]; len(got) != 1 || got[0] != masked {
		t.Errorf("the field is shown as %q", got)
	}
	if got := c.Shown().StaticPodURLHeader["X-Two"]; !slices.Equal(got, []string{masked, masked}) {
		t.Errorf("a field of two values is shown as %q", got)
	}
	if got := c.Kubelet.StaticPodURLHeader["Authorization"]; got[0] != "Bearer secret" {
		t.Errorf("the agent itself has %q", got)
	}
}
