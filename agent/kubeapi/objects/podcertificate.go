package objects

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/oneline"
)

const (
	// certificatePatience is how long one who asks waits for the signer; the pod asks again.
	certificatePatience = 2 * time.Second
	certificatePoll     = 200 * time.Millisecond
	// certificateAgain is when a certificate is asked for again that was to be another by now.
	certificateAgain = 10 * time.Second
	// certificateSpread bounds by how much later than its signer says a certificate is replaced: those
	// of pods that were made together are not asked for together. Signers leave ten minutes at least.
	certificateSpread = 5 * time.Minute
	// certificateOverdue is how late it is when that is told.
	certificateOverdue = 10 * time.Minute
)

// podCertificates are those of the pods, with their keys, which are nowhere but here and in the
// pods' volumes: the next run of the agent asks for others.
type podCertificates struct {
	cfg                             Config
	perPod[string, *podCertificate] // by the projection
}

// podCertificate is what a projection has. Its fields are its pod's goroutine's alone, but for shown,
// which is guarded as the certificates of all.
//
//	nothing -> asked for -> issued -> asked for the next -> issued ...
//	               |                        |
//	               `--> refused <-----------'
type podCertificate struct {
	key, chain     []byte // PEM; nil: none was issued yet
	renew, expires time.Time
	next           pendingCertificate // no name: nothing is asked for
	refused        error              // for good
	refusal        string             // the type of the condition that refused
	toldOverdue    bool
	toldExpired    bool
	shown          certificateState
}

// pendingCertificate is a request that the signer has yet to answer.
type pendingCertificate struct {
	name string
	key  []byte
}

// of is what the projection of a pod has. Calls for one pod come one after another.
func (c *podCertificates) of(
	pod types.UID, projection, signer string,
) *podCertificate {
	held, has := c.get(pod, projection)
	if !has {
		held = &podCertificate{shown: certificateState{signer: signer}}
		c.put(pod, projection, held)
	}
	return held
}

// Certificate is a private key and the chain of certificates that the signer issued for it, both in
// PEM, and when to ask again. Calls for one pod come one after another. One that cannot be replaced
// in time stays, and that is told.
func (o *Objects) Certificate(
	ctx context.Context, pod *v1.Pod, want *v1.PodCertificateProjection,
) (key, chain []byte, again time.Time, err error) {
	id, err := json.Marshal(want)
	if err != nil {
		return nil, nil, time.Time{}, err
	}
	held, now := o.certificates.of(pod.UID, string(id), want.SignerName), time.Now()
	if held.refused == nil && (held.chain == nil || !now.Before(held.renew)) {
		err = o.certificates.renew(ctx, pod, want, held)
	}
	o.certificates.show(held)
	o.certificates.tellLate(pod, held, time.Now())
	switch {
	case held.refused != nil:
		return nil, nil, time.Time{}, held.refused
	case held.chain == nil && err == nil:
		return nil, nil, time.Time{}, &cri.ObjectError{
			Err: errors.New("credential bundle is not issued yet")}
	case held.chain == nil:
		return nil, nil, time.Time{}, &cri.ObjectError{Err: err}
	case time.Now().Before(held.renew):
		return held.key, held.chain, held.renew, nil
	default:
		return held.key, held.chain, time.Now().Add(certificateAgain), nil
	}
}

// renewCertificate asks the signer, and waits for it a moment.
func (c *podCertificates) renew(ctx context.Context, pod *v1.Pod,
	want *v1.PodCertificateProjection, held *podCertificate) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Wait)
	defer cancel()
	if held.next.name == "" {
		next, err := c.request(ctx, pod, want)
		if err != nil {
			return err
		}
		held.next = next
	}
	patient := time.After(certificatePatience)
	for {
		answer, err := c.cfg.Client.CertificatesV1().PodCertificateRequests(pod.Namespace).
			Get(ctx, held.next.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err): // somebody deleted it
			held.next = pendingCertificate{}
			return err
		case err != nil && !apierrors.IsForbidden(err):
			return err
		case err == nil && c.learn(pod, held, answer):
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-patient:
			return nil
		case <-time.After(certificatePoll):
		}
	}
}

func (c *podCertificates) request(ctx context.Context, pod *v1.Pod,
	want *v1.PodCertificateProjection) (next pendingCertificate, err error) {
	node := c.cfg.Node()
	if node == nil {
		return next, errors.New("the node's object is not known yet")
	}
	account, err := insist(ctx, apierrors.IsForbidden, func() (*v1.ServiceAccount, error) {
		return c.cfg.Client.CoreV1().ServiceAccounts(pod.Namespace).
			Get(ctx, pod.Spec.ServiceAccountName, metav1.GetOptions{})
	})
	if err != nil {
		return next, fmt.Errorf("while fetching service account: %w", err)
	}
	key, stub, err := newKey(want.KeyType)
	if err != nil {
		return next, err
	}
	request := &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
			},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: want.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(node.Name), NodeUID: node.UID,
			MaxExpirationSeconds: want.MaxExpirationSeconds, StubPKCS10Request: stub,
			UnverifiedUserAnnotations: want.UserAnnotations,
		},
	}
	made, err := insist(ctx, apierrors.IsForbidden, func() (
		*certificatesv1.PodCertificateRequest, error) {
		return c.cfg.Client.CertificatesV1().PodCertificateRequests(pod.Namespace).
			Create(ctx, request, metav1.CreateOptions{})
	})
	if err != nil {
		return next, fmt.Errorf("while creating PodCertificateRequest: %w", err)
	}
	return pendingCertificate{made.Name, key}, nil
}

// refusals are the conditions by which a signer refuses for good, in a sentence.
var refusals = map[string]string{
	certificatesv1.PodCertificateRequestConditionTypeDenied: "was denied",
	certificatesv1.PodCertificateRequestConditionTypeFailed: "failed",
}

// learn takes in what the signer answered, and reports whether it did. A refusal is told.
func (c *podCertificates) learn(pod *v1.Pod, held *podCertificate,
	answer *certificatesv1.PodCertificateRequest) bool {
	for _, is := range answer.Status.Conditions {
		reason, message := oneline.Cut(is.Reason, 64), oneline.Cut(is.Message, oneline.Most/2)
		did, refused := refusals[is.Type]
		s := answer.Status
		switch {
		case refused:
			held.refusal, held.refused = is.Type, fmt.Errorf(
				"PodCertificateRequest was permanently %s: reason=%q message=%q",
				strings.ToLower(is.Type), reason, message)
			c.cfg.Tell(pod, v1.EventTypeWarning, is.Type, fmt.Sprintf("PodCertificateRequest %s/%s "+
				"%s, reason=%q, message=%q", answer.Namespace, answer.Name, did, reason, message))
		case is.Type == certificatesv1.PodCertificateRequestConditionTypeIssued &&
			s.BeginRefreshAt != nil && s.NotAfter != nil:
			held.key, held.chain = held.next.key, onlyCertificates(s.CertificateChain)
			held.renew = s.BeginRefreshAt.Add(rand.N(certificateSpread))
			held.expires = s.NotAfter.Time
			held.toldOverdue, held.toldExpired = false, false
		default:
			continue
		}
		held.next = pendingCertificate{}
		return true
	}
	return false
}

// onlyCertificates drops what a signer wrote between and in the blocks.
func onlyCertificates(chain string) []byte {
	out := []byte{}
	for rest := []byte(chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return out
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
}

// tellLate tells once of each certificate that it should have been replaced, and that it expired.
func (c *podCertificates) tellLate(pod *v1.Pod, held *podCertificate, now time.Time) {
	if held.chain == nil {
		return
	}
	if now.After(held.renew.Add(certificateOverdue)) && !held.toldOverdue {
		held.toldOverdue = true
		c.cfg.Tell(pod, v1.EventTypeWarning, "CertificateOverdueForRefresh",
			"PodCertificate refresh overdue")
	}
	if now.After(held.expires) && !held.toldExpired {
		held.toldExpired = true
		c.cfg.Tell(pod, v1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	}
}
