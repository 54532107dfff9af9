package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certificateLife is how long certificates are valid: longer than any playground runs.
const certificateLife = 365 * 24 * time.Hour

// authority signs the certificates of the cluster's servers and clients.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	end         time.Time // of what it signs; zero: in certificateLife
}

// pair is a certificate with its key, both as PEM.
type pair struct{ certificate, key []byte }

func newAuthority() (authority, error) {
	key, err := newKey()
	if err != nil {
		return authority{}, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "numalet"}, key)
	if err != nil {
		return authority{}, fmt.Errorf("make the cluster's certificate authority: %w", err)
	}
	return authority{certificate: certificate, key: key}, nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// pem is the authority's certificate and its key.
func (a authority) pem() (p pair, err error) {
	p.key, err = keyutil.MarshalPrivateKeyToPEM(a.key)
	return pair{a.encode(a.certificate), p.key}, err
}

func (authority) encode(c *x509.Certificate) []byte {
	out, err := cert.EncodeCertificates(c)
	if err != nil {
		panic(err) // it writes to memory only
	}
	return out
}

// client makes what a user proves who they are with.
func (a authority) client(user string, groups ...string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server makes what a server proves with that it is at these names and addresses.
func (a authority) server(name string, hosts ...string) (pair, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return a.issue(template)
}

func (a authority) issue(template *x509.Certificate) (p pair, err error) {
	key, err := newKey()
	if err != nil {
		return p, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return p, err
	}
	template.NotBefore = a.certificate.NotBefore
	template.NotAfter = time.Now().Add(certificateLife)
	if !a.end.IsZero() {
		template.NotBefore, template.NotAfter = a.end.Add(-certificateLife), a.end
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	raw, err := x509.CreateCertificate(
		rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return p, fmt.Errorf("sign the certificate of %s: %w", template.Subject.CommonName, err)
	}
	signed, err := x509.ParseCertificate(raw)
	if err != nil {
		return p, err
	}
	p.key, err = keyutil.MarshalPrivateKeyToPEM(key)
	return pair{a.encode(signed), p.key}, err
}
