package cluster_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// signs runs an authority that answers the namespace's certificate requests until the test ends: it
// issues for the signer good.test/x, and denies for bad.test/x.
func signs(t *testing.T, c rig.Cluster) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			all, err := c.Client.CertificatesV1().PodCertificateRequests(c.Namespace).
				List(ctx, metav1.ListOptions{})
			for i := range all.Items {
				if r := &all.Items[i]; len(r.Status.Conditions) == 0 {
					err = answer(ctx, c, r, key)
				}
			}
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
}

func answer(ctx context.Context, c rig.Cluster, r *certificatesv1.PodCertificateRequest,
	key *ecdsa.PrivateKey) error {
	condition := metav1.Condition{Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Type: "Issued", Reason: "Issued"}
	if r.Spec.SignerName == "good.test/x" {
		stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
		if err != nil {
			return err
		}
		begin := time.Now().Truncate(time.Second).Add(-time.Minute)
		made := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin,
			NotAfter: begin.Add(24 * time.Hour),
			Subject:  pkix.Name{CommonName: r.Spec.ServiceAccountName + " on " + string(r.Spec.NodeName)}}
		der, err := x509.CreateCertificate(rand.Reader, made, &x509.Certificate{
			Subject: pkix.Name{CommonName: "test"}}, stub.PublicKey, key)
		if err != nil {
			return err
		}
		r.Status.CertificateChain = string(pem.EncodeToMemory(
			&pem.Block{Type: "CERTIFICATE", Bytes: der}))
		r.Status.NotBefore = &metav1.Time{Time: made.NotBefore}
		r.Status.BeginRefreshAt = &metav1.Time{Time: begin.Add(12 * time.Hour)}
		r.Status.NotAfter = &metav1.Time{Time: made.NotAfter}
	} else {
		condition.Type, condition.Reason, condition.Message = "Denied", "NotForYou", "never"
	}
	r.Status.Conditions = []metav1.Condition{condition}
	_, err := c.Client.CertificatesV1().PodCertificateRequests(r.Namespace).
		UpdateStatus(ctx, r, metav1.UpdateOptions{})
	return err
}

// TestPodCertificates: a pod gets a key and the certificate that a signer issued for it, in one
// file or in two. If the signer denies, the pod waits and says why.
func TestPodCertificates(t *testing.T) {
	onEach(t, func(t *testing.T, c rig.Cluster, n rig.Node) {
		signs(t, c)
		pod := func(name, signer string) {
			c.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {
 nodeName: %s, tolerations: [{operator: Exists}], terminationGracePeriodSeconds: 0,
 automountServiceAccountToken: false, volumes: [{name: id, projected: {sources: [
  {podCertificate: {signerName: %[3]s, keyType: ED25519, credentialBundlePath: all.pem}},
  {podCertificate: {signerName: %[3]s, keyType: ECDSAP384, keyPath: key.pem,
   certificateChainPath: chain.pem}}]}}],
 containers: [{name: main, image: "registry.test/work:1",
  volumeMounts: [{name: id, mountPath: /id}]}]}}`, name, n.Name, signer))
		}
		pod("good", "good.test/x")
		pod("bad", "bad.test/x")
		p := await(t, c, c.Namespace, "good", runs)
		const volume = "kubernetes.io~projected/id/"
		both, err := fileIn(n, p, volume+"all.pem")
		if err == nil {
			_, err = tls.X509KeyPair([]byte(both), []byte(both))
		}
		if err != nil {
			t.Errorf("the key and its certificate in one file: %v", err)
		}
		key, err1 := fileIn(n, p, volume+"key.pem")
		chain, err2 := fileIn(n, p, volume+"chain.pem")
		pair, err3 := tls.X509KeyPair([]byte(chain), []byte(key))
		if err1 != nil || err2 != nil || err3 != nil ||
			pair.Leaf.Subject.CommonName != "default on "+n.Name {
			t.Errorf("in two files: %v, %v, %v", err1, err2, err3)
		}
		awaitFailedMount(t, c, "bad", `PodCertificateRequest was permanently denied: `+
			`reason="NotForYou" message="never"`)
		harness.Eventually(t, "each certificate was asked for once", func() error {
			all, err := c.Client.CertificatesV1().PodCertificateRequests(c.Namespace).
				List(context.Background(), metav1.ListOptions{})
			if err == nil && len(all.Items) != 4 {
				err = fmt.Errorf("there are %d requests", len(all.Items))
			}
			return err
		})
	})
}
