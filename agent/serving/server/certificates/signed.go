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

// errUnsigned is the error of handshakes until the first certificate is signed.
var errUnsigned = errors.New("no serving certificate available: its request (kubectl get csr) " +
	"waits to be approved and signed")

// SignedConfig describes the certificate and who signs it.
type SignedConfig struct {
	Node string
	// Dir holds the certificates, as kubelet-server-current.pem.
	Dir string
	// Client is the client of the API server.
	Client kubernetes.Interface
	// Addresses returns the node's present addresses, for the certificate. None is requested without
	// any.
	Addresses func() []v1.NodeAddress
	// NamesOnly allows to request a certificate without an IP address.
	NamesOnly bool
	// Registry takes the metrics; nil: nothing is counted.
	Registry metrics.KubeRegistry
}

// Signed is a certificate that the API server signs. It is renewed before it expires, and when the
// node's addresses change.
type Signed struct{ manager certificate.Manager }

// NewSigned requests nothing before Run. It reuses the certificate of an earlier run.
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

// template returns the request to be signed; nil: nothing can be requested yet.
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

// Certificate returns the newest signed certificate.
func (s *Signed) Certificate() (*tls.Certificate, error) {
	if cert := s.manager.Current(); cert != nil {
		return cert, nil
	}
	return nil, errUnsigned
}

// Run requests and renews certificates until ctx ends.
func (s *Signed) Run(ctx context.Context) error {
	s.manager.Start()
	<-ctx.Done()
	s.manager.Stop()
	return nil
}
