package objects

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/metric/metrictest"
	"github.com/numalet/numalet/internal/podtest"
)

// signer has the requests for certificates, and answers them as a test says.
type signer struct {
	*fake.Clientset
	made   []*certificatesv1.PodCertificateRequest
	answer func(*certificatesv1.PodCertificateRequest) // nil: not yet
	events []string
}

func newSigner() *signer {
	s := &signer{Clientset: fake.NewClientset(&v1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "seller", UID: "s"}})}
	s.PrependReactor("create", "podcertificaterequests", func(a clienttesting.Action) (
		bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*certificatesv1.PodCertificateRequest)
		r = r.DeepCopy()
		r.Name = fmt.Sprint(r.GenerateName, len(s.made))
		s.made = append(s.made, r)
		return true, r, nil
	})
	s.PrependReactor("get", "podcertificaterequests", func(a clienttesting.Action) (
		bool, runtime.Object, error) {
		name := a.(clienttesting.GetAction).GetName()
		at := slices.IndexFunc(s.made,
			func(r *certificatesv1.PodCertificateRequest) bool { return r.Name == name })
		if at < 0 {
			return false, nil, nil
		}
		if s.answer != nil {
			s.answer(s.made[at])
		}
		return true, s.made[at].DeepCopy(), nil
	})
	return s
}

func (s *signer) objects() *Objects {
	return New(Config{Client: s,
		Node: func() *v1.Node {
			return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "node"}}
		},
		Tell: func(_ *v1.Pod, _, reason, message string) {
			s.events = append(s.events, reason+": "+message)
		}})
}

// issue answers with a chain that says which request it is for, good for a day from now.
func issue(r *certificatesv1.PodCertificateRequest) {
	if len(r.Status.Conditions) > 0 {
		return
	}
	r.Status.Conditions = []metav1.Condition{{Type: "Issued", Status: "True"}}
	r.Status.CertificateChain = "noise\n" + string(pem.EncodeToMemory(&pem.Block{
		Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte(r.Name)}))
	now := time.Now()
	r.Status.NotBefore = &metav1.Time{Time: now}
	r.Status.BeginRefreshAt = &metav1.Time{Time: now.Add(20 * time.Hour)}
	r.Status.NotAfter = &metav1.Time{Time: now.Add(24 * time.Hour)}
}

func refuse(kind string) func(*certificatesv1.PodCertificateRequest) {
	return func(r *certificatesv1.PodCertificateRequest) {
		r.Status.Conditions = []metav1.Condition{
			{Type: kind, Status: "True", Reason: "Why", Message: "so"}}
	}
}

func sellerPod() *v1.Pod {
	return podtest.New("shop/web", podtest.UID("u"),
		func(p *v1.Pod) { p.Spec.ServiceAccountName = "seller" })
}

func chainOf(name string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)})
}

// The request says whose it is and proves that the key is held, of whatever type; the key stays here.
func TestCertificateRequests(t *testing.T) {
	for kind := range keyTypes() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newSigner()
			s.answer = issue
			seconds := int32(7200)
			want := &v1.PodCertificateProjection{SignerName: "a.test/x", KeyType: kind,
				MaxExpirationSeconds: &seconds, UserAnnotations: map[string]string{"a.test/k": "v"}}
			key, chain, _, err := s.objects().Certificate(t.Context(), sellerPod(), want)
			if err != nil || !bytes.Equal(chain, chainOf("req-0")) {
				t.Fatalf("got %s, %v", chain, err)
			}
			spec := s.made[0].Spec
			if spec.SignerName != "a.test/x" || spec.PodName != "web" || spec.PodUID != "u" ||
				spec.ServiceAccountName != "seller" || spec.ServiceAccountUID != "s" ||
				spec.NodeName != "n" || spec.NodeUID != "node" ||
				*spec.MaxExpirationSeconds != 7200 || spec.UnverifiedUserAnnotations["a.test/k"] != "v" {
				t.Errorf("asked with %+v", spec)
			}
			if of := s.made[0].OwnerReferences; len(of) != 1 || of[0].UID != "u" {
				t.Errorf("owned by %v", of)
			}
			stub, err := x509.ParseCertificateRequest(spec.StubPKCS10Request)
			if err != nil || stub.CheckSignature() != nil || stub.Subject.String() != "" {
				t.Fatalf("the stub is %v, %v", stub, err)
			}
			block, rest := pem.Decode(key)
			private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil || len(rest) > 0 || block.Type != "PRIVATE KEY" {
				t.Fatalf("the key is %v, %v", block.Type, err)
			}
			public, err := x509.MarshalPKIXPublicKey(private.(crypto.Signer).Public())
			if err != nil || !bytes.Equal(public, stub.RawSubjectPublicKeyInfo) {
				t.Errorf("the request is for another key: %v", err)
			}
		})
	}
	_, _, _, err := newSigner().objects().Certificate(t.Context(), sellerPod(),
		&v1.PodCertificateProjection{KeyType: "DSA"})
	if err == nil || !strings.Contains(err.Error(), `keyType "DSA" is none of ECDSAP256, `) {
		t.Errorf("got %v", err)
	}
}

// A pod waits for its signer, and asks once. A certificate is replaced when its time comes; one that
// cannot be stays, and that it is late, and that it expired, is told once.
func TestCertificateIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSigner()
		o, pod := s.objects(), sellerPod()
		registry := metrics.NewKubeRegistry()
		if err := o.Register(registry); err != nil {
			t.Fatal(err)
		}
		isNow := func(state string) {
			t.Helper()
			got := metrictest.Values(t, registry, "kubelet_podcertificate_states")
			if want := map[string]float64{"a.test/x," + state: 1}; !maps.Equal(got, want) {
				t.Errorf("the metric has %v, want %v", got, want)
			}
		}
		want := &v1.PodCertificateProjection{SignerName: "a.test/x", KeyType: "ED25519"}
		ask := func() (key, chain []byte, again time.Time, err error) {
			return o.Certificate(context.Background(), pod, want)
		}
		for range 3 {
			_, _, _, err := ask()
			var lacks *cri.ObjectError
			if !errors.As(err, &lacks) || err.Error() != "credential bundle is not issued yet" {
				t.Errorf("got %v", err)
			}
		}
		isNow("not_yet_issued")
		s.answer = issue
		first, chain, again, err := ask()
		isNow("fresh")
		if err != nil || !bytes.Equal(chain, chainOf("req-0")) || len(s.made) != 1 {
			t.Fatalf("got %s, %v after %d requests", chain, err, len(s.made))
		}
		if late := time.Until(again) - 20*time.Hour; late < 0 || late >= certificateSpread {
			t.Errorf("it is replaced %v after the time that the signer says", late)
		}
		s.answer = nil
		time.Sleep(time.Until(again) - time.Second)
		if key, _, then, err := ask(); err != nil || !then.Equal(again) || !bytes.Equal(key, first) {
			t.Errorf("got another too early, or %v", err)
		}
		time.Sleep(time.Second)
		for _, later := range []struct {
			wait  time.Duration
			state string
		}{{0, "fresh"}, {certificateOverdue + 1, "overdue_for_refresh"}, {4 * time.Hour, "expired"}} {
			time.Sleep(later.wait)
			isNow(later.state)
			key, chain, then, err := ask()
			if err != nil || !bytes.Equal(key, first) || !bytes.Equal(chain, chainOf("req-0")) ||
				time.Until(then) > certificateAgain {
				t.Errorf("late: got %s until %v, %v", chain, then, err)
			}
		}
		if want := []string{"CertificateOverdueForRefresh: PodCertificate refresh overdue",
			"CertificateExpired: PodCertificate expired"}; !slices.Equal(s.events, want) {
			t.Errorf("told %q", s.events)
		}
		s.answer = issue
		key, chain, _, err := ask()
		if err != nil || bytes.Equal(key, first) || !bytes.Equal(chain, chainOf("req-1")) ||
			len(s.made) != 2 {
			t.Errorf("renewed: got %s, %v after %d requests", chain, err, len(s.made))
		}
		// A request that somebody deleted is made again; a pod that is gone has nothing.
		isNow("fresh")
		o.Release(pod.UID)
		if got := metrictest.Values(t, registry, "kubelet_podcertificate_states"); len(got) > 0 {
			t.Errorf("of a pod that is gone the metric has %v", got)
		}
		s.answer = nil
		_, _, _, err = ask()
		s.made[2].Name = "gone"
		_, _, _, err2 := ask()
		s.answer = issue
		if _, chain, _, err3 := ask(); err == nil || err2 == nil || err3 != nil ||
			!bytes.Equal(chain, chainOf("req-3")) {
			t.Errorf("got %s, %v, %v, %v", chain, err, err2, err3)
		}
	})
}

// What a signer refuses it is not asked again, and why is told once.
func TestCertificateRefused(t *testing.T) {
	for kind, words := range map[string][2]string{
		"Denied": {`PodCertificateRequest was permanently denied: reason="Why" message="so"`,
			`Denied: PodCertificateRequest shop/req-0 was denied, reason="Why", message="so"`},
		"Failed": {`PodCertificateRequest was permanently failed: reason="Why" message="so"`,
			`Failed: PodCertificateRequest shop/req-0 failed, reason="Why", message="so"`},
	} {
		s := newSigner()
		s.answer = refuse(kind)
		o, registry := s.objects(), metrics.NewKubeRegistry()
		if err := o.Register(registry); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, _, _, err := o.Certificate(t.Context(), sellerPod(),
				&v1.PodCertificateProjection{SignerName: "a.test/x", KeyType: "ED25519"})
			if err == nil || err.Error() != words[0] {
				t.Errorf("got %v", err)
			}
		}
		states := metrictest.Values(t, registry, "kubelet_podcertificate_states")
		if states["a.test/x,"+strings.ToLower(kind)] != 1 {
			t.Errorf("the metric has %v", states)
		}
		if len(s.made) != 1 || !slices.Equal(s.events, []string{words[1]}) {
			t.Errorf("%d requests, told %q", len(s.made), s.events)
		}
	}
}
