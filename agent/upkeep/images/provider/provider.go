package provider

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/singleflight"
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletv1 "k8s.io/kubelet/config/v1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/numalet/numalet/cri"
)

// Accounts provides the service accounts of pods.
type Accounts interface {
	// ServiceAccount returns the pod's account, Token one of its tokens for an audience, bound to the
	// pod.
	ServiceAccount(ctx context.Context, pod *v1.Pod) (*v1.ServiceAccount, error)
	Token(ctx context.Context, pod *v1.Pod, want *v1.ServiceAccountTokenProjection) (
		text []byte, renew time.Time, err error)
}

// Config says where the providers are.
type Config struct {
	// File is their configuration file or directory, Dir the directory of their programs.
	File, Dir string
	// Accounts is nil if there is no API server: no pod has a service account then.
	Accounts Accounts
	// Registry takes the metrics; nil: nothing is measured.
	Registry metrics.KubeRegistry
}

// Providers holds all providers of a node.
type Providers struct {
	all      []*provider
	accounts Accounts
}

// provider is one configured provider.
type provider struct {
	kubeletv1.CredentialProvider
	program program
	cache   cache
	calls   singleflight.Group // concurrent calls with the same question share one
}

// Open reads the configuration, and checks that the programs exist.
func Open(c Config) (*Providers, error) {
	configured, hash, err := load(c.File)
	if err != nil {
		return nil, fmt.Errorf("read --image-credential-provider-config: %w", err)
	}
	p := &Providers{accounts: c.Accounts}
	measured, err := register(c.Registry, hash)
	if err != nil {
		return nil, err
	}
	for _, one := range configured {
		path, err := exec.LookPath(filepath.Join(c.Dir, one.Name))
		if err != nil {
			return nil, fmt.Errorf("credential provider %s: %w; put its program into "+
				"--image-credential-provider-bin-dir", one.Name, err)
		}
		run := program{name: one.Name, path: path, apiVersion: one.APIVersion, args: one.Args,
			runs: measured}
		for _, e := range one.Env {
			run.env = append(run.env, e.Name+"="+e.Value)
		}
		p.all = append(p.all, &provider{CredentialProvider: one, program: run})
	}
	return p, nil
}

// Logins returns the logins for an image that a pod wants, one group for each provider asked, in
// the configured order. image is the full name without tag and digest. The error names providers
// that failed; the groups of the others are valid.
func (p *Providers) Logins(ctx context.Context, pod *v1.Pod, image string) (
	groups [][]cri.Login, err error) {
	var errs []error
	for _, one := range p.all {
		if !slices.ContainsFunc(one.MatchImages, func(place string) bool {
			return cri.Matches(place, image)
		}) {
			continue
		}
		found, err := one.logins(ctx, p.accounts, pod, image)
		if err != nil {
			errs = append(errs, fmt.Errorf("credential provider %s: %w", one.Name, err))
		}
		groups = append(groups, found)
	}
	return groups, errors.Join(errs...)
}

// asker identifies on whose behalf a provider is asked.
type asker struct {
	request credentialv1.CredentialProviderRequest
	// who distinguishes askers that must not share answers.
	who    string
	holder cri.Holder
}

func (p *provider) logins(ctx context.Context, accounts Accounts, pod *v1.Pod, image string) (
	[]cri.Login, error) {
	by := asker{}
	if p.TokenAttributes != nil {
		var err error
		if by, err = p.asker(ctx, accounts, pod); err != nil {
			return nil, err
		}
		if by.holder.Kind == "" && *p.TokenAttributes.RequireServiceAccount {
			return nil, nil // the provider does not serve this pod
		}
	}
	if found, ok := p.cache.get(image, by.who, time.Now()); ok {
		return found, nil
	}
	by.request.Image = image
	// The first caller may give up before the others.
	result := p.calls.DoChan(by.who+" "+image, func() (any, error) {
		return p.ask(context.WithoutCancel(ctx), by)
	})
	select {
	case r := <-result:
		found, _ := r.Val.([]cri.Login)
		return found, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// ask runs the program and caches its answer.
func (p *provider) ask(ctx context.Context, by asker) ([]cri.Login, error) {
	response, err := p.program.ask(ctx, by.request)
	if err != nil {
		return nil, err
	}
	return p.take(by, response, time.Now())
}

// take caches an answer and returns its logins.
func (p *provider) take(by asker, response credentialv1.CredentialProviderResponse, now time.Time) (
	[]cri.Login, error) {
	value, err := valueFor(response.CacheKeyType, by.request.Image)
	if err != nil {
		return nil, err
	}
	var out []cri.Login
	for place, auth := range response.Auth {
		if by.request.ServiceAccountToken != "" && auth.Password == by.request.ServiceAccountToken &&
			p.TokenAttributes.CacheType != kubeletv1.TokenServiceAccountTokenCacheType {
			return nil, errors.New("it returned the service account token as the password, which " +
				"is not allowed when tokenAttributes.cacheType is not Token")
		}
		out = append(out, cri.Login{Place: place, Holder: by.holder, Auth: &runtimeapi.AuthConfig{
			Username: auth.Username, Password: auth.Password,
		}})
	}
	keep := p.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		keep = response.CacheDuration.Duration
	}
	p.cache.put(cacheKey{response.CacheKeyType, value, by.who}, answer{out, now.Add(keep)}, now)
	return out, nil
}

// asker returns the pod's service account with a token; it is empty for a pod without account.
func (p *provider) asker(ctx context.Context, accounts Accounts, pod *v1.Pod) (a asker, err error) {
	if accounts == nil || pod.Spec.ServiceAccountName == "" {
		return a, nil
	}
	account, err := accounts.ServiceAccount(ctx, pod)
	if err != nil {
		return a, fmt.Errorf("service account %s: %w", pod.Spec.ServiceAccountName, err)
	}
	t := p.TokenAttributes
	annotations := map[string]string{}
	for _, key := range slices.Concat(t.RequiredServiceAccountAnnotationKeys,
		t.OptionalServiceAccountAnnotationKeys) {
		value, has := account.Annotations[key]
		switch {
		case has:
			annotations[key] = value
		case slices.Contains(t.RequiredServiceAccountAnnotationKeys, key):
			return a, fmt.Errorf("service account %s has no annotation %s, which the provider needs",
				account.Name, key)
		}
	}
	token, _, err := accounts.Token(ctx, pod,
		&v1.ServiceAccountTokenProjection{Audience: t.ServiceAccountTokenAudience})
	if err != nil {
		return a, fmt.Errorf("token of service account %s: %w", account.Name, err)
	}
	a.request.ServiceAccountToken, a.request.ServiceAccountAnnotations = string(token), annotations
	a.holder = cri.Holder{Kind: cri.HolderServiceAccount, UID: string(account.UID),
		Namespace: account.Namespace, Name: account.Name}
	if t.CacheType != kubeletv1.TokenServiceAccountTokenCacheType {
		token = nil // its answers are the same for all tokens
	}
	a.who, err = digest(a.holder, annotations, token)
	return a, err
}

// digest identifies askers without exposing their secrets.
func digest(parts ...any) (string, error) {
	text, err := json.Marshal(parts)
	if err != nil {
		return "", fmt.Errorf("encode who asks: %w", err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}
