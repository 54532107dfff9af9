package objects

import (
	"bytes"
	"encoding/pem"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// FuzzCertificates: whatever a trust bundle or a signer says, a pod gets blocks of PEM and nothing
// beside them, of a bundle only certificates, each once; and they are the same when read again.
func FuzzCertificates(f *testing.F) {
	block := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("der")}))
	for _, text := range []string{
		"", block, "words\n" + block + "between" + block, "-----BEGIN CERTIFICATE-----",
		"-----BEGIN X-----\nA: b\n\nZGVy\n-----END X-----\n", block[:len(block)-3],
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		of := func(text string) []byte {
			return certificates([]certificatesv1.ClusterTrustBundle{
				{Spec: certificatesv1.ClusterTrustBundleSpec{TrustBundle: text}},
			})
		}
		seen := map[string]bool{}
		bundle := of(text)
		for rest := bundle; len(rest) > 0; {
			var b *pem.Block
			if b, rest = pem.Decode(rest); b == nil || b.Type != "CERTIFICATE" ||
				len(b.Headers) > 0 || seen[string(b.Bytes)] {
				t.Fatalf("%q becomes %q", text, bundle)
			}
			seen[string(b.Bytes)] = true
		}
		if again := of(string(bundle)); !bytes.Equal(again, bundle) {
			t.Errorf("%q, and then %q", bundle, again)
		}
		chain := onlyCertificates(text)
		if again := onlyCertificates(string(chain)); !bytes.Equal(again, chain) {
			t.Errorf("%q, and then %q", chain, again)
		}
	})
}
