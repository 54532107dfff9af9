package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Source provides the server's certificate. Certificate is called in each handshake and must not
// block.
type Source interface {
	Certificate() (*tls.Certificate, error)
}

// defaultSuites returns Go's cipher suites of TLS 1.2 without CBC, which does not combine
// encryption with authentication. Suites of TLS 1.3 cannot be chosen.
func defaultSuites() (out []uint16) {
	for _, s := range tls.CipherSuites() {
		if !strings.Contains(s.Name, "_CBC_") {
			out = append(out, s.ID)
		}
	}
	return out
}

// TLS returns the configuration of handshakes. Clients may present a certificate. clientCAs returns
// the authorities that are named to them; it may be nil.
func TLS(k *kubeletv1beta1.KubeletConfiguration, from Source, clientCAs func() *x509.CertPool) (
	*tls.Config, error) {
	version, err := cliflag.TLSVersion(k.TLSMinVersion)
	if err != nil {
		return nil, fmt.Errorf("tlsMinVersion: %w", err)
	}
	suites, err := cliflag.TLSCipherSuites(k.TLSCipherSuites)
	if err != nil {
		return nil, fmt.Errorf("tlsCipherSuites: %w", err)
	}
	if len(suites) == 0 {
		suites = defaultSuites()
	}
	curves, err := cliflag.TLSCurvePreferences(k.TLSCurvePreferences)
	if err != nil {
		return nil, fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	base := &tls.Config{
		MinVersion: max(version, tls.VersionTLS12), CipherSuites: suites, CurvePreferences: curves,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return from.Certificate()
		},
	}
	if clientCAs == nil {
		return base, nil
	}
	base.ClientAuth = tls.RequestClientCert
	outer := base.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := base.Clone()
		now.ClientCAs = clientCAs()
		return now, nil
	}
	return outer, nil
}
