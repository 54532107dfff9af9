package certificates

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	certutil "k8s.io/client-go/util/cert"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/internal/files"
)

func leaf(t *testing.T, from Source) *x509.Certificate {
	t.Helper()
	cert, err := from.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	out, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A self-signed certificate has the node's name and addresses and is made once. Only its owner can
// read the key.
func TestSelfSigned(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "pki")
	ip := net.ParseIP("192.0.2.7")
	first, err := SelfSigned(dir, "node1", []net.IP{ip})
	if err != nil {
		t.Fatal(err)
	}
	cert := leaf(t, first)
	if cert.VerifyHostname("node1") != nil || cert.VerifyHostname("192.0.2.7") != nil {
		t.Errorf("for %v and %v", cert.DNSNames, cert.IPAddresses)
	}
	info, err := os.Stat(filepath.Join(dir, "kubelet.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v %v", info.Mode(), err)
	}
	again, err := SelfSigned(dir, "node2", nil)
	if err != nil || !leaf(t, again).Equal(cert) {
		t.Errorf("another one was made: %v", err)
	}
}

// TestSelfSignedIsMadeAnew: of a pair that cannot be used, what is there is kept aside, and another pair is
// made, which the next start uses.
func TestSelfSignedIsMadeAnew(t *testing.T) {
	cut := func(path string) error { return os.Truncate(path, 100) }
	for what, damage := range map[string]func(path string) error{
		"missing": os.Remove, "cut": cut,
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"a folder": func(path string) error {
			return errors.Join(os.Remove(path), os.MkdirAll(filepath.Join(path, "kept"), 0o700))
		},
		"a pipe": func(path string) error {
			return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600))
		},
		"a link to nothing": func(path string) error {
			return errors.Join(os.Remove(path), os.Symlink("nothing", path))
		},
		"large": func(path string) error { return os.Truncate(path, maxFile+1) },
	} {
		for _, name := range []string{"kubelet.crt", "kubelet.key"} {
			dir := t.TempDir()
			first, err := SelfSigned(dir, "node1", nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			second, err := SelfSigned(dir, "node1", nil)
			if !errors.Is(err, files.ErrUnusable) || second == nil || leaf(t, second).Equal(leaf(t, first)) {
				t.Errorf("%s %s: %v, %v", name, what, second, err)
				continue
			}
			third, err := SelfSigned(dir, "node1", nil)
			if err != nil || !leaf(t, third).Equal(leaf(t, second)) {
				t.Errorf("%s %s: the next start has another one: %v", name, what, err)
			}
			kept, err := filepath.Glob(filepath.Join(dir, "*.corrupt-*"))
			want := 2
			if what == "missing" {
				want = 1
			}
			if err != nil || len(kept) != want {
				t.Errorf("%s %s: kept are %q, %v", name, what, kept, err)
			}
		}
	}
}

// TestFilesAreReadAgain: a new pair takes effect without a restart; a mismatched pair does not.
func TestFilesAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	put := func(host string) {
		t.Helper()
		cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		// The key is written first: Files does not take a pair that does not match.
		if err := errors.Join(os.WriteFile(keyFile, key, 0o600),
			os.WriteFile(certFile, cert, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := FromFiles(certFile, keyFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no files: %v", err)
	}
	put("first")
	f, err := FromFiles(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- f.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	put("second")
	deadline := time.Now().Add(2 * time.Minute)
	for leaf(t, f).VerifyHostname("second") != nil {
		if time.Now().After(deadline) {
			t.Fatal("the new files do not count")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := os.WriteFile(certFile, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	if leaf(t, f).VerifyHostname("second") != nil {
		t.Error("the last good pair is not served on")
	}
}

// TestTLS: the protocol version and the ciphers are the configured ones, TLS 1.2 is the minimum,
// HTTP/2 works, and clients are asked for certificates of the present authorities.
func TestTLS(t *testing.T) {
	source, err := SelfSigned(t.TempDir(), "node1", []net.IP{net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(leaf(t, source))
	asked := 0
	clientCAs := func() *x509.CertPool { asked++; return roots }
	connect := func(k *kubeletv1beta1.KubeletConfiguration, client *tls.Config) error {
		t.Helper()
		config, err := TLS(k, source, clientCAs)
		if err != nil {
			t.Fatal(err)
		}
		s := httptest.NewUnstartedServer(nil)
		s.TLS, s.EnableHTTP2 = config, true
		s.StartTLS()
		defer s.Close()
		client.InsecureSkipVerify = true //nolint:gosec // the test looks at the handshake
		client.NextProtos = []string{"h2"}
		wants := false
		client.GetClientCertificate = func(i *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			wants = len(i.AcceptableCAs) == 1
			return &tls.Certificate{}, nil
		}
		c, err := tls.Dial("tcp", s.Listener.Addr().String(), client)
		if err != nil {
			return err
		}
		defer c.Close()
		if state := c.ConnectionState(); state.NegotiatedProtocol != "h2" || !wants {
			t.Errorf("%q is spoken, a certificate is asked for: %v", state.NegotiatedProtocol,
				wants)
		}
		return nil
	}
	const weak, strong = "TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
	only := func(names ...string) (out []uint16) {
		for _, s := range slices.Concat(tls.CipherSuites(), tls.InsecureCipherSuites()) {
			if slices.Contains(names, s.Name) {
				out = append(out, s.ID)
			}
		}
		return out
	}
	plain := &kubeletv1beta1.KubeletConfiguration{}
	if err := connect(plain, &tls.Config{}); err != nil {
		t.Error(err)
	}
	if err := connect(plain, &tls.Config{MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken")
	}
	old := &kubeletv1beta1.KubeletConfiguration{TLSMinVersion: "VersionTLS10"}
	if err := connect(old, &tls.Config{MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is spoken where the configuration has it")
	}
	newest := &kubeletv1beta1.KubeletConfiguration{TLSMinVersion: "VersionTLS13"}
	if err := connect(newest, &tls.Config{MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("TLS 1.2 is spoken against the configuration")
	}
	one := &kubeletv1beta1.KubeletConfiguration{TLSCipherSuites: []string{strong}}
	if err := connect(one, &tls.Config{MaxVersion: tls.VersionTLS12,
		CipherSuites: only(strong)}); err != nil {
		t.Error(err)
	}
	if err := connect(one, &tls.Config{MaxVersion: tls.VersionTLS12,
		CipherSuites: only("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", weak)}); err == nil {
		t.Error("another cipher is spoken")
	}
	if err := connect(plain, &tls.Config{MaxVersion: tls.VersionTLS12,
		CipherSuites: only(weak)}); err == nil {
		t.Error("a weak cipher is spoken by default")
	}
	const cbc = "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"
	if err := connect(plain, &tls.Config{MaxVersion: tls.VersionTLS12,
		CipherSuites: only(cbc, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA")}); err == nil {
		t.Error("CBC is spoken by default")
	}
	if !slices.Contains(defaultSuites(), tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256) ||
		slices.Contains(defaultSuites(), tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA) {
		t.Errorf("suites by default: %v", defaultSuites())
	}
	named := &kubeletv1beta1.KubeletConfiguration{TLSCipherSuites: []string{cbc, strong}}
	if config, err := TLS(named, source, nil); err != nil ||
		!slices.Equal(config.CipherSuites, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA,
			tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384}) {
		t.Errorf("of suites that are named there are %v, %v", config, err)
	}
	if asked == 0 {
		t.Error("the authorities are not asked for with each connection")
	}
}

// TestTemplate: without an address no certificate is requested; names alone suffice only if
// allowed.
func TestTemplate(t *testing.T) {
	name := v1.NodeAddress{Type: v1.NodeHostName, Address: "node1"}
	ip := v1.NodeAddress{Type: v1.NodeInternalIP, Address: "192.0.2.7"}
	for what, tc := range map[string]struct {
		addresses []v1.NodeAddress
		namesOnly bool
		want      bool
	}{
		"nothing": {nil, true, false}, "name": {[]v1.NodeAddress{name}, false, false},
		"name, allowed": {[]v1.NodeAddress{name}, true, true},
		"both, twice":   {[]v1.NodeAddress{ip, name, name, ip, {}}, false, true},
	} {
		r := template("node1", tc.addresses, tc.namesOnly)
		if (r != nil) != tc.want {
			t.Errorf("%s: %v", what, r)
		}
		if r != nil && (r.Subject.CommonName != "system:node:node1" ||
			!slices.Equal(r.Subject.Organization, []string{"system:nodes"}) ||
			!slices.Equal(r.DNSNames, []string{"node1"}) || len(r.IPAddresses) > 1) {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

// TestSigned: there is no certificate until the API server has signed one. The request is the
// node's, and the signed certificate is kept for the next run.
func TestSigned(t *testing.T) {
	dir := t.TempDir()
	api := fake.NewClientset()
	requested := make(chan *certificatesv1.CertificateSigningRequest, 1)
	api.PrependReactor("create", "certificatesigningrequests", func(a clienttesting.Action) (
		bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject()
		select {
		case requested <- r.(*certificatesv1.CertificateSigningRequest):
		default:
		}
		return false, nil, nil
	})
	s, err := NewSigned(SignedConfig{
		Node: "node1", Dir: dir, Client: api,
		Addresses: func() []v1.NodeAddress {
			return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "192.0.2.7"}}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Certificate(); !errors.Is(err, errUnsigned) {
		t.Errorf("before anything was signed: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case r := <-requested:
		if r.Spec.SignerName != "kubernetes.io/kubelet-serving" ||
			!slices.Contains(r.Spec.Usages, certificatesv1.UsageServerAuth) ||
			!bytes.Contains(r.Spec.Request, []byte("CERTIFICATE REQUEST")) {
			t.Errorf("asked for %+v", r.Spec)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing was asked for")
	}
}
