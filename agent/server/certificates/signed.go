package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/certificate"
	"k8s.io/component-base/metrics"
)

// errUnsigned is what handshakes fail with until the first certificate was signed.
var errUnsigned = errors.New("no serving certificate available: its request (kubectl get csr) " +
	"waits to be approved and signed")

// SignedConfig says whose certificate is to be signed by whom.
type SignedConfig struct {
	Node string
	// Dir keeps the certificates, as kubelet-server-current.pem.
	Dir string
	// Client is the API server.
	Client kubernetes.Interface
	// Addresses are the node's now: what the certificate is for. Without any none is asked for.
	Addresses func() []v1.NodeAddress
	// NamesOnly reports whether a certificate without an IP address is asked for too.
	NamesOnly bool
	// Registry takes the metrics; nil: nothing is counted.
	Registry metrics.KubeRegistry
}

// Signed is a certificate that the API server signs, and signs again before it ends or when the
// node has other addresses.
type Signed struct{ manager certificate.Manager }

// NewSigned asks for nothing before Run. A certificate of an earlier run is used on.
func NewSigned(c SignedConfig) (*Signed, error) {
	store, err := certificate.NewFileStore("kubelet-server", c.Dir, c.Dir, "", "")
	if err != nil {
		return nil, fmt.Errorf("open the store of serving certificates: %w", err)
	}
	m := newMeasures()
	manager, err := certificate.NewManager(&certificate.Config{
		ClientsetFn: func(*tls.Certificate) (kubernetes.Interface, error) {
			return c.Client, nil
		},
		GetTemplate: func() *x509.CertificateRequest {
			return template(c.Node, c.Addresses(), c.NamesOnly)
		},
		SignerName:              certificatesv1.KubeletServingSignerName,
		GetUsages:               certificate.DefaultKubeletServingGetUsages,
		CertificateStore:        store,
		CertificateRotation:     m.rotated,
		CertificateRenewFailure: m.failed,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the serving certificate: %w", err)
	}
	m.certificate = manager.Current
	if err := m.Register(c.Registry); err != nil {
		return nil, err
	}
	return &Signed{manager}, nil
}

// template is what a signature is asked for; nil: for nothing yet.
func template(node string, addresses []v1.NodeAddress, namesOnly bool) *x509.CertificateRequest {
	r := &x509.CertificateRequest{Subject: pkix.Name{
		CommonName: "system:node:" + node, Organization: []string{"system:nodes"},
	}}
	for _, a := range addresses {
		switch ip := net.ParseIP(a.Address); {
		case a.Address == "":
		case ip != nil:
			r.IPAddresses = append(r.IPAddresses, ip)
		default:
			r.DNSNames = append(r.DNSNames, a.Address)
		}
	}
	slices.Sort(r.DNSNames)
	r.DNSNames = slices.Compact(r.DNSNames)
	slices.SortFunc(r.IPAddresses, func(a, b net.IP) int { return slices.Compare(a, b) })
	r.IPAddresses = slices.CompactFunc(r.IPAddresses, net.IP.Equal)
	if len(r.IPAddresses) == 0 && (len(r.DNSNames) == 0 || !namesOnly) {
		return nil
	}
	return r
}

// Certificate is the newest that was signed.
func (s *Signed) Certificate() (*tls.Certificate, error) {
	if cert := s.manager.Current(); cert != nil {
		return cert, nil
	}
	return nil, errUnsigned
}

// Run has certificates signed until ctx ends.
func (s *Signed) Run(ctx context.Context) error {
	s.manager.Start()
	<-ctx.Done()
	s.manager.Stop()
	return nil
}
