package objects

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// keyTypes returns functions that make the keys a projection may ask for, by the API's names.
func keyTypes() map[string]func() (crypto.Signer, error) {
	withRSA := func(bits int) func() (crypto.Signer, error) {
		return func() (crypto.Signer, error) { return rsa.GenerateKey(rand.Reader, bits) }
	}
	withCurve := func(c elliptic.Curve) func() (crypto.Signer, error) {
		return func() (crypto.Signer, error) { return ecdsa.GenerateKey(c, rand.Reader) }
	}
	return map[string]func() (crypto.Signer, error){
		"RSA3072": withRSA(3072), "RSA4096": withRSA(4096),
		"ECDSAP256": withCurve(elliptic.P256()), "ECDSAP384": withCurve(elliptic.P384()),
		"ECDSAP521": withCurve(elliptic.P521()),
		"ED25519": func() (crypto.Signer, error) {
			_, key, err := ed25519.GenerateKey(rand.Reader)
			return key, err
		},
	}
}

// newKey makes a key, in PEM, and an empty PKCS#10 request that proves possession of it.
func newKey(kind string) (key, stub []byte, err error) {
	generate, known := keyTypes()[kind]
	if !known {
		return nil, nil, fmt.Errorf("keyType %q is none of %s", kind,
			strings.Join(slices.Sorted(maps.Keys(keyTypes())), ", "))
	}
	signer, err := generate()
	if err != nil {
		return nil, nil, fmt.Errorf("make a key of type %s: %w", kind, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(signer)
	if err != nil {
		return nil, nil, fmt.Errorf("encode a key of type %s: %w", kind, err)
	}
	stub, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, signer)
	if err != nil {
		return nil, nil, fmt.Errorf("make a request for a key of type %s: %w", kind, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), stub, nil
}
