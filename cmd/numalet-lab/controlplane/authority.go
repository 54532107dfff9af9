package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certificateLife is how long certificates are valid, longer than any playground runs.
const certificateLife = 365 * 24 * time.Hour

// authority signs the certificates of the cluster's servers and clients.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
	own         pair      // its own certificate and key as PEM
	end         time.Time // expiry of the certificates it signs; zero: after certificateLife
}

// pair is a certificate and its key, both as PEM.
type pair struct{ certificate, key []byte }

func newPair(certificate []byte, key crypto.Signer) (p pair, err error) {
	p.certificate = pem.EncodeToMemory(
		&pem.Block{Type: cert.CertificateBlockType, Bytes: certificate})
	p.key, err = keyutil.MarshalPrivateKeyToPEM(key)
	return p, err
}

func (p pair) write(certFile, keyFile string) error {
	return errors.Join(os.WriteFile(keyFile, p.key, 0o600),
		os.WriteFile(certFile, p.certificate, 0o644))
}

// writeAs writes NAME.crt and NAME.key.
func (p pair) writeAs(name string) error { return p.write(name+".crt", name+".key") }

func newAuthority() (authority, error) {
	key, err := newKey()
	if err != nil {
		return authority{}, err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "numalet"}, key)
	if err != nil {
		return authority{}, fmt.Errorf("make the cluster's certificate authority: %w", err)
	}
	own, err := newPair(certificate.Raw, key)
	return authority{certificate: certificate, key: key, own: own}, err
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

// client issues a client certificate for a user.
func (a authority) client(user string, groups ...string) (pair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// server issues a server certificate for these names and addresses.
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
	return newPair(raw, key)
}
