package kubeapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyv1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/metrics"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/config"
)

// settings are the kubelet's defaults for what a client is made of.
func settings(rotate bool) *kubeletv1beta1.KubeletConfiguration {
	return &kubeletv1beta1.KubeletConfiguration{
		ContentType: "application/vnd.kubernetes.protobuf", RotateCertificates: rotate,
		KubeAPIQPS: ptr.To[int32](50), KubeAPIBurst: 100,
		EventRecordQPS: ptr.To[int32](50), EventBurst: 100,
		NodeStatusUpdateFrequency: metav1.Duration{Duration: 10 * time.Second},
		NodeLeaseDurationSeconds:  40,
	}
}

// start makes a client and runs it until the test ends.
func start(t *testing.T, c Config) *Client {
	t.Helper()
	c.Node, c.Registry = "n", metrics.NewKubeRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	client, err := New(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return client
}

func get(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestBootstrap: the node asks for its certificate as whom the bootstrap kubeconfig says, requests
// wait for it, and the kubeconfig that is written is what the next run starts with.
func TestBootstrap(t *testing.T) {
	for _, rotate := range []bool{false, true} {
		t.Run(fmt.Sprintf("rotate %v", rotate), func(t *testing.T) {
			a, dir := newAPIServer(t), t.TempDir()
			c := Config{Kubelet: settings(rotate), Cluster: config.Cluster{
				Kubeconfig:          filepath.Join(dir, "etc", "kubelet.conf"),
				BootstrapKubeconfig: a.kubeconfig(t, dir, "bootstrap", "{token: abc}"),
				CertDir:             filepath.Join(dir, "pki"),
			}}
			get(t, start(t, c).Main())
			for _, s := range a.requests("certificatesigningrequests") {
				if s.token != "Bearer abc" {
					t.Errorf("a request to sign came with %q", s.token)
				}
			}
			if got := a.requests("/nodes/n"); len(got) != 1 || got[0].user != "system:node:n" ||
				got[0].token != "" {
				t.Errorf("the node asked as %+v", got)
			}
			info, err := os.Stat(filepath.Join(c.Cluster.CertDir, "kubelet-client-current.pem"))
			if err != nil || info.Mode() != 0o600 {
				t.Errorf("certificate and key: %v, %v", info, err)
			}
			signed := len(a.requests("certificatesigningrequests"))
			c.Cluster.BootstrapKubeconfig = filepath.Join(dir, "gone")
			get(t, start(t, c).Main())
			if got := a.requests("/nodes/n"); len(got) != 2 || got[1].user != "system:node:n" {
				t.Errorf("after a restart the node asked as %+v", got)
			}
			if got := len(a.requests("certificatesigningrequests")); got != signed {
				t.Error("a second certificate was asked for")
			}
		})
	}
}

// TestRequestsWaitForTheCertificate: none reaches the API server before.
func TestRequestsWaitForTheCertificate(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	a.approved = false
	client := start(t, Config{Kubelet: settings(true), Cluster: config.Cluster{
		Kubeconfig:          filepath.Join(dir, "kubelet.conf"),
		BootstrapKubeconfig: a.kubeconfig(t, dir, "bootstrap", "{token: abc}"),
		CertDir:             filepath.Join(dir, "pki"),
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := client.Heartbeats().CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
	if err == nil || !strings.Contains(err.Error(), "no client certificate yet") {
		t.Errorf("without a certificate: %v", err)
	}
	if got := a.requests("/nodes/n"); len(got) > 0 {
		t.Errorf("requests without a certificate: %v", got)
	}
	a.mu.Lock()
	a.approved = true
	a.mu.Unlock()
	get(t, client.Main())
}

// TestRotation: a certificate that is about to expire is renewed with itself, and connections with
// the old one end.
func TestRotation(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	old := filepath.Join(dir, "old.pem")
	write(t, old, a.pair(t, "system:node:n", time.Now().Add(time.Minute)))
	client := start(t, Config{Kubelet: settings(true), Cluster: config.Cluster{
		Kubeconfig: a.kubeconfig(t, dir, "kubelet.conf",
			"{client-certificate: old.pem, client-key: old.pem}"),
		CertDir: filepath.Join(dir, "pki"),
	}})
	get(t, client.Main())
	before := a.connections()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "pki", "kubelet-client-current.pem")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the certificate was not renewed")
		}
	}
	for _, s := range a.requests("certificatesigningrequests") {
		if s.user != "system:node:n" {
			t.Errorf("a request to sign came as %q", s.user)
		}
	}
	client.rotation.changed() // what run calls within 10 s
	get(t, client.Main())
	if a.connections() == before {
		t.Error("requests use a connection with the old certificate")
	}
}

// TestRenewedSince: a node whose certificate was renewed goes on with that, also when the one that
// its kubeconfig has is over.
func TestRenewedSince(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	pki := filepath.Join(dir, "pki")
	write(t, filepath.Join(dir, "past.pem"), a.pair(t, "system:node:n", time.Now().Add(-time.Minute)))
	c := Config{Kubelet: settings(true), Cluster: config.Cluster{CertDir: pki,
		Kubeconfig: a.kubeconfig(t, dir, "kubelet.conf",
			"{client-certificate: past.pem, client-key: past.pem}")}}
	if err := os.Mkdir(pki, 0o700); err != nil {
		t.Fatal(err)
	}
	now := filepath.Join(pki, "kubelet-client-current.pem")
	write(t, now, a.pair(t, "system:node:n", time.Now().Add(-time.Minute)))
	if _, err := New(t.Context(), c); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("with two certificates that are over: %v", err)
	}
	write(t, now, a.pair(t, "system:node:n", time.Now().Add(time.Hour)))
	get(t, start(t, c).Main())
}

// TestWaysToBeKnown: whatever a kubeconfig has for a user.
func TestWaysToBeKnown(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	write(t, filepath.Join(dir, "own.pem"), a.pair(t, "system:node:n", time.Now().Add(time.Hour)))
	plugin := filepath.Join(dir, "plugin")
	write(t, plugin, []byte(`#!/bin/sh
echo '{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
"status": {"token": "fromplugin"}}'
`))
	if err := os.Chmod(plugin, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "token"), []byte("fromfile"))
	for user, want := range map[string]seen{
		"{token: abc}":       {token: "Bearer abc"},
		"{tokenFile: token}": {token: "Bearer fromfile"},
		"{client-certificate: own.pem, client-key: own.pem}": {user: "system:node:n"},
		"{exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin, " +
			"interactiveMode: Never}}": {token: "Bearer fromplugin"},
	} {
		for _, rotate := range []bool{false, true} {
			before := len(a.requests("/nodes/n"))
			get(t, start(t, Config{Kubelet: settings(rotate), Cluster: config.Cluster{
				Kubeconfig: a.kubeconfig(t, dir, "kubelet.conf", user), CertDir: dir,
			}}).Main())
			got := a.requests("/nodes/n")[before]
			if got.user != want.user || got.token != want.token {
				t.Errorf("%s, rotate %v: asked as %q with %q", user, rotate, got.user, got.token)
			}
		}
	}
}

// TestConnections: what says that the node lives has a connection of its own, and Reset closes all.
func TestConnections(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	client := start(t, Config{Kubelet: settings(false), Cluster: config.Cluster{
		Kubeconfig: a.kubeconfig(t, dir, "kubelet.conf", "{token: abc}"),
	}})
	for range 3 {
		get(t, client.Main())
		get(t, client.Heartbeats())
		get(t, client.Events())
	}
	if got := a.connections(); got != 3 {
		t.Errorf("%d connections for three clients", got)
	}
	client.Reset()
	get(t, client.Main())
	if got := a.connections(); got != 4 {
		t.Errorf("%d connections after all were closed and one was used", got)
	}
	h := a.requests("/nodes/n")[0].header
	if got := h.Get("Accept"); got != "application/vnd.kubernetes.protobuf,application/json" {
		t.Errorf("Accept: %s", got)
	}
	if got := h.Get("User-Agent"); !strings.HasPrefix(got, "numalet/v1.") {
		t.Errorf("User-Agent: %s", got)
	}
}

// TestRates: each client has the limits of its settings, and none slows down what says that the node
// lives; what takes longer than the node may be silent has failed.
func TestRates(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	for name, test := range map[string]struct {
		qps, eventQPS, burst, eventBurst int32
		update                           time.Duration
		main, events                     string
		timeout                          time.Duration
	}{
		"each its own": {qps: 3, burst: 4, eventQPS: 5, eventBurst: 6, update: 10 * time.Second,
			main: "3/s, 4 at once", events: "5/s, 6 at once", timeout: 10 * time.Second},
		"events without limit": {qps: 3, burst: 4, eventBurst: 6, update: time.Minute,
			main: "3/s, 4 at once", events: "no limit", timeout: 40 * time.Second},
	} {
		s := settings(false)
		s.KubeAPIQPS, s.KubeAPIBurst = &test.qps, test.burst
		s.EventRecordQPS, s.EventBurst = &test.eventQPS, test.eventBurst
		s.NodeStatusUpdateFrequency.Duration = test.update
		client := start(t, Config{Kubelet: s, Cluster: config.Cluster{
			Kubeconfig: a.kubeconfig(t, dir, "kubelet.conf", "{token: abc}"),
		}})
		for of, one := range map[string]struct {
			client kubernetes.Interface
			want   string
		}{
			"all else":   {client.Main(), test.main},
			"reviews":    {client.Reviews(), test.main},
			"heartbeats": {client.Heartbeats(), "no limit"},
			"events":     {client.Events(), test.events},
		} {
			if got := rate(one.client); got != one.want {
				t.Errorf("%s: %s: %s, want %s", name, of, got, one.want)
			}
		}
		beats, ok := client.Heartbeats().CoreV1().RESTClient().(*rest.RESTClient)
		if !ok || beats.Client.Timeout != test.timeout {
			t.Errorf("%s: heartbeats fail after %v, want %v", name, beats.Client.Timeout,
				test.timeout)
		}
	}
}

// rate is what a client is held to, found by asking for as many requests at once as it allows.
func rate(c kubernetes.Interface) string {
	limit := c.CoreV1().RESTClient().GetRateLimiter()
	if limit == nil {
		return "no limit"
	}
	burst := 0
	for limit.TryAccept() && burst < 1000 {
		burst++
	}
	return fmt.Sprintf("%v/s, %d at once", limit.QPS(), burst)
}

func TestBadKubeconfig(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	past := filepath.Join(dir, "past.pem")
	write(t, past, a.pair(t, "system:node:n", time.Now().Add(-time.Minute)))
	write(t, filepath.Join(dir, "empty"), nil)
	write(t, filepath.Join(dir, "garbage"), []byte("a: ["))
	for path, want := range map[string]string{
		filepath.Join(dir, "none"):    "leave the flag out",
		filepath.Join(dir, "empty"):   "invalid configuration",
		filepath.Join(dir, "garbage"): "no kubeconfig",
		"/dev/zero":                   "not a regular file",
		dir:                           "not a regular file",
		a.kubeconfig(t, dir, "old", "{client-certificate: past.pem, client-key: past.pem}"): "expired",
	} {
		_, err := New(t.Context(), Config{
			Kubelet: settings(false), Cluster: config.Cluster{Kubeconfig: path}, Node: "n",
		})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// TestBadAuthority: what is wrong with the authority of the API server is said with its place and
// what it has to be, and nothing waits for it.
func TestBadAuthority(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	path := a.kubeconfig(t, dir, "kubelet.conf", "{token: abc}")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "empty"), nil)
	write(t, filepath.Join(dir, "garbage"), []byte("no certificate"))
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for field, want := range map[string]string{
		"certificate-authority: none":        dir + "/none of cluster c: ",
		"certificate-authority: empty":       dir + "/empty of cluster c: ",
		"certificate-authority: garbage":     dir + "/garbage of cluster c: ",
		"certificate-authority: pipe":        "pipe is not a regular file",
		"certificate-authority: .":           "not a regular file",
		"certificate-authority: /dev/zero":   "not a regular file",
		"certificate-authority-data: YQo=":   "certificate-authority-data of cluster c: ",
		"certificate-authority: 'ca\\0.crt'": "ca",
	} {
		write(t, path, bytes.Replace(good, []byte("certificate-authority: ca.crt"), []byte(field), 1))
		_, err := New(t.Context(), Config{
			Kubelet: settings(false), Cluster: config.Cluster{Kubeconfig: path}, Node: "n",
		})
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "it has to be the certificate") ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", field, err, want)
		}
	}
}

// TestDisbelieved: when the API server's certificate is not believed it is said what to look at:
// the authority, or the clock if the certificate is not valid now.
func TestDisbelieved(t *testing.T) {
	a, dir := newAPIServer(t), t.TempDir()
	path := a.kubeconfig(t, dir, "kubelet.conf", "{token: abc}")
	write(t, filepath.Join(dir, "ca.crt"), encode("CERTIFICATE", newAPIServer(t).ca.Raw))
	client := start(t, Config{Kubelet: settings(false), Cluster: config.Cluster{Kubeconfig: path}})
	_, err := client.Main().CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
	if err == nil || !strings.Contains(err.Error(), "; the certificate-authority in --kubeconfig") {
		t.Errorf("by another authority: %v", err)
	}
	expired := x509.CertificateInvalidError{Reason: x509.Expired}
	for said, want := range map[error]string{
		&tls.CertificateVerificationError{Err: expired}: "; compare this machine's clock",
		io.ErrUnexpectedEOF:                             io.ErrUnexpectedEOF.Error(),
	} {
		_, err := advised(fails{said}, nil)
		if !errors.Is(err, said) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", said, err, want)
		}
	}
}

// fails is a transport that does.
type fails struct{ error }

func (f fails) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }

// answers is a transport that answers with a header.
type answers http.Header

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Header: http.Header(a).Clone()}, nil
}

// TestRetryAfter: an API server that wants to be left alone for long is asked after a minute.
func TestRetryAfter(t *testing.T) {
	for says, want := range map[string]string{
		"5": "5", "60": "60", "61": "60", "86400": "60", "9223372036854775807": "60",
		"-1": "-1", "soon": "soon", "": "",
	} {
		header := answers{}
		if says != "" {
			header["Retry-After"] = []string{says}
		}
		got, err := hurried(header, nil)
		if err != nil || got.Header.Get("Retry-After") != want {
			t.Errorf("Retry-After %q became %q, want %q (%v)", says, got.Header.Get("Retry-After"),
				want, err)
		}
	}
}

// Requests are in CBOR if the configuration says so and the gate allows it; otherwise they are JSON.
// Apply patches are in CBOR if the gates allow and prefer it.
func TestCBOR(t *testing.T) {
	const text, cbor, yaml = "application/json", "application/cbor", "application/apply-patch+yaml"
	for _, tt := range []struct {
		allow, prefer bool
		create, apply string
	}{
		{false, false, text, yaml}, {true, false, cbor, yaml}, {false, true, text, yaml},
		{true, true, cbor, "application/apply-patch+cbor"},
	} {
		got := make(chan string, 2)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case got <- r.Header.Get("Content-Type"):
			default:
			}
			w.WriteHeader(http.StatusNotFound)
		}))
		if err := setFeatures(cborGates(tt.allow, tt.prefer)); err != nil {
			t.Fatal(err)
		}
		k := settings(false)
		k.ContentType = cbor
		own := &rest.Config{Host: s.URL}
		tune(own, k)
		client, err := kubernetes.NewForConfig(own)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = client.CoreV1().Nodes().Create(t.Context(), &v1.Node{}, metav1.CreateOptions{})
		_, _ = client.CoreV1().Nodes().Apply(t.Context(), applyv1.Node("n"), metav1.ApplyOptions{})
		if create, apply := <-got, <-got; create != tt.create || apply != tt.apply {
			t.Errorf("%+v: created with %s, applied with %s", tt, create, apply)
		}
		s.Close()
		if err := setFeatures(cborGates(false, false)); err != nil {
			t.Fatal(err)
		}
	}
}

// cborGates returns the gates about CBOR.
func cborGates(allow, prefer bool) featuregate.FeatureGate {
	gates := featuregate.NewFeatureGate()
	_ = gates.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		"ClientsAllowCBOR": {Default: allow}, "ClientsPreferCBOR": {Default: prefer},
	})
	return gates
}
