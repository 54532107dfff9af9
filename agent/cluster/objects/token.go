package objects

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// maxTokenAge is the greatest age of a token.
	maxTokenAge = 24 * time.Hour
	// A token is replaced when a tokenLeft-th of its life is left,
	tokenLeft = 5
	// by up to tokenJitter sooner.
	tokenJitter = 10 * time.Second
	// tokenRetry is the pause after a token could not be replaced.
	tokenRetry = time.Minute
	// authorizerLag is how long parts of the API server may take to hear that a pod is the node's:
	// until then its Node authorizer refuses, and no token is made for a pod that is not found.
	// Mostly this takes a few milliseconds, so the pauses between tries double from firstInsist up
	// to lastInsist.
	authorizerLag           = time.Second
	firstInsist, lastInsist = 4 * time.Millisecond, 64 * time.Millisecond
	// defaultTokenSeconds is the API's default.
	defaultTokenSeconds = 3600
)

// tokenKey identifies a token of a pod.
type tokenKey struct {
	audience string
	seconds  int64
}

type token struct {
	text           []byte
	renew, expires time.Time
}

// tokens holds the tokens of pods.
type tokens struct {
	perPod[tokenKey, token]
	cfg Config
}

// Token returns a token of the pod's service account that is bound to the pod, and the time at
// which to ask again. A token that cannot be replaced in time is used until it expires.
func (o *Objects) Token(
	ctx context.Context, pod *v1.Pod, want *v1.ServiceAccountTokenProjection,
) (text []byte, renew time.Time, err error) {
	got, renew, err := o.tokens.valid(ctx, pod, tokenKey{want.Audience,
		ptr.Deref(want.ExpirationSeconds, defaultTokenSeconds)})
	return got.text, renew, err
}

// valid returns a token, and the time at which to ask again.
func (t *tokens) valid(ctx context.Context, pod *v1.Pod, k tokenKey) (
	_ token, again time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Wait)
	defer cancel()
	held, has := t.get(pod.UID, k)
	now := time.Now()
	if has && now.Before(held.renew) {
		return held, held.renew, nil
	}
	fresh, err := insist(ctx, unheard, func() (token, error) {
		return k.request(ctx, t.cfg.Client, pod)
	})
	switch {
	case err == nil:
		t.put(pod.UID, k, fresh)
		return fresh, fresh.renew, nil
	case has && now.Before(held.expires):
		klog.FromContext(ctx).Info("A token could not be replaced, trying again",
			"pod", klog.KObj(pod), "serviceAccount", pod.Spec.ServiceAccountName,
			"expires", held.expires, "err", err)
		return held, now.Add(tokenRetry), nil
	default:
		return token{}, time.Time{}, fmt.Errorf("failed to fetch token: %w", err)
	}
}

// unheard reports whether an error may only mean that the API server has not heard of the pod yet:
// its authorizer then refuses, and the pod is not found.
func unheard(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsNotFound(err) }

func (k tokenKey) request(
	ctx context.Context, client kubernetes.Interface, pod *v1.Pod,
) (token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &k.seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}}
	if k.audience != "" {
		request.Spec.Audiences = []string{k.audience}
	}
	answer, err := client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx,
		pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return token{}, err
	}
	life := time.Duration(ptr.Deref(answer.Spec.ExpirationSeconds, k.seconds)) * time.Second
	expires := answer.Status.ExpirationTimestamp.Time
	return token{
		text: []byte(answer.Status.Token), expires: expires,
		renew: renewal(expires, life).Add(-rand.N(tokenJitter)),
	}, nil
}

// renewal returns the latest time to replace a token with that life.
func renewal(expires time.Time, life time.Duration) time.Time {
	late, old := expires.Add(-life/tokenLeft), expires.Add(-life).Add(maxTokenAge)
	if old.Before(late) {
		return old
	}
	return late
}
