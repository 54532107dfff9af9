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
	// certificatePatience is how long a caller waits for the signer; the pod asks again.
	certificatePatience = 2 * time.Second
	certificatePoll     = 200 * time.Millisecond
	// certificateAgain is the pause before a certificate that is due for replacement is asked for
	// again.
	certificateAgain = 10 * time.Second
	// certificateSpread bounds how much later than its signer says a certificate is replaced, so
	// that pods that were made together do not ask together. Signers leave at least ten minutes.
	certificateSpread = 5 * time.Minute
	// certificateOverdue is the delay of a replacement after which that is reported.
	certificateOverdue = 10 * time.Minute
)

// podCertificates holds the pods' certificates with their keys, which exist only here and in the
// pods' volumes: the next run of the agent asks for new ones.
type podCertificates struct {
	cfg                             Config
	perPod[string, *podCertificate] // by the projection
}

// podCertificate is the certificate of one projection. Its pod's goroutine owns the fields, except
// shown, which the lock of all certificates guards.
//
//	nothing -> asked for -> issued -> asked for the next -> issued ...
//	               |                        |
//	               `--> refused <-----------'
type podCertificate struct {
	key, chain      []byte // PEM; nil: none was issued yet
	renew, expires  time.Time
	next            pendingCertificate // no name: nothing is asked for
	refused         error              // for good
	refusal         string             // the type of the condition that refused
	reportedOverdue bool
	reportedExpired bool
	shown           certificateState
}

// pendingCertificate is a request that the signer has not answered.
type pendingCertificate struct {
	name string
	key  []byte
}

// of returns the certificate of a pod's projection. Calls for one pod are sequential.
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

// Certificate returns a private key and the chain of certificates that the signer issued for it,
// both in PEM, and the time at which to ask again. Calls for one pod are sequential. A certificate
// that cannot be replaced in time stays, and that is reported.
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

// renew asks the signer, and waits a moment for it.
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
		case apierrors.IsNotFound(err): // it was deleted
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
	account, err := read(ctx, c.cfg, c.cfg.Client.CoreV1().ServiceAccounts(pod.Namespace),
		pod.Spec.ServiceAccountName)
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

// refusals maps the conditions by which a signer refuses for good to a verb.
var refusals = map[string]string{
	certificatesv1.PodCertificateRequestConditionTypeDenied: "was denied",
	certificatesv1.PodCertificateRequestConditionTypeFailed: "failed",
}

// learn records the signer's answer, and reports whether there is one. A refusal becomes an event.
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
			held.reportedOverdue, held.reportedExpired = false, false
		default:
			continue
		}
		held.next = pendingCertificate{}
		return true
	}
	return false
}

// onlyCertificates drops whatever a signer wrote beside the PEM blocks' content.
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

// tellLate records one event when a certificate is overdue for replacement, and one when it has
// expired.
func (c *podCertificates) tellLate(pod *v1.Pod, held *podCertificate, now time.Time) {
	if held.chain == nil {
		return
	}
	if now.After(held.renew.Add(certificateOverdue)) && !held.reportedOverdue {
		held.reportedOverdue = true
		c.cfg.Tell(pod, v1.EventTypeWarning, "CertificateOverdueForRefresh",
			"PodCertificate refresh overdue")
	}
	if now.After(held.expires) && !held.reportedExpired {
		held.reportedExpired = true
		c.cfg.Tell(pod, v1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	}
}
