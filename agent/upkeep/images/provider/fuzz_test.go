package provider

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1 "k8s.io/kubelet/config/v1"
	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/numalet/numalet/cri"
)

// FuzzAnswer: whatever a program answers, its logins are used only for images and callers that the
// answer covers, and not after it expires. Errors contain nothing secret.
func FuzzAnswer(f *testing.F) {
	for _, rest := range []string{
		`"cacheKeyType":"Image","auth":{"*.reg.test":{"username":"u","password":"secret"}}`,
		`"cacheKeyType":"Registry","cacheDuration":"1m","auth":{"x.reg.test:80/a":{}}`,
		`"cacheKeyType":"Global","cacheDuration":"-1s","auth":{"[":{"password":"secret"}}`,
		`"cacheKeyType":"Global","cacheDuration":"2540400h10m10s","auth":null`,
		`"cacheKeyType":"All","auth":{"secret":{"username":"secret"}}`,
		`"cacheKeyType":"Image","cacheDuration":9e99,"auth":{"x":{"password":"secret"}}`,
		`"cacheKeyType":"Image","auth":{"x":{"password":7}}`, `"auth":[]`,
	} {
		f.Add([]byte(`{"kind":"CredentialProviderResponse","apiVersion":"`+group+`v1",`+rest+`}`),
			"x.reg.test/a")
	}
	f.Add([]byte(`{"kind":"CredentialProviderResponse","apiVersion":"`+group+`v1","cacheKeyType":"`+
		strings.Repeat("x", 4*maxReported)+`"}`), "a")
	f.Add([]byte(`null`), "a")
	f.Add([]byte(`{"kind":"secret","apiVersion":"secret\nsecret"}`), "a")
	f.Fuzz(func(t *testing.T, text []byte, image string) {
		now := time.Now()
		p := &provider{
			CredentialProvider: kubeletv1.CredentialProvider{
				DefaultCacheDuration: &metav1.Duration{Duration: time.Hour},
			},
			program: program{apiVersion: group + "v1"},
		}
		answer, err := p.program.decode(text)
		if err != nil {
			short(t, err, answer, image)
			return
		}
		by := asker{request: credentialv1.CredentialProviderRequest{Image: image}}
		found, err := p.take(by, answer, now)
		if err != nil {
			short(t, err, answer, image)
			return
		}
		if len(found) != len(answer.Auth) {
			t.Fatalf("%s has %d logins, found %d", text, len(answer.Auth), len(found))
		}
		for _, l := range found {
			of := answer.Auth[l.Place]
			if l.Auth.Username != of.Username || l.Auth.Password != of.Password {
				t.Errorf("%s: for %q there is %v", text, l.Place, l.Auth)
			}
			cri.Matches(l.Place, image)
		}
		lasts := time.Hour
		if answer.CacheDuration != nil {
			lasts = answer.CacheDuration.Duration
		}
		for at, want := range map[time.Time]bool{
			now: lasts > 0, now.Add(lasts - 1): lasts > 0, now.Add(lasts): false,
		} {
			got, ok := p.cache.get(image, "", at)
			if ok != want || ok && !slices.Equal(got, found) {
				t.Errorf("%s: after %v it is kept: %v, want %v", text, at.Sub(now), ok, want)
			}
		}
		if _, ok := p.cache.get(image, "another", now); ok {
			t.Errorf("%s is kept for another", text)
		}
	})
}

// short checks that an error is one short line without logins.
func short(t *testing.T, err error, answer credentialv1.CredentialProviderResponse, image string) {
	t.Helper()
	said := err.Error()
	open := strings.Join([]string{image, answer.Kind, answer.APIVersion,
		string(answer.CacheKeyType)}, " ") // not secret
	if len(said) > 3*maxReported || strings.Contains(said, "\n") {
		t.Errorf("it is said %q", said)
	}
	for place, of := range answer.Auth {
		for _, text := range []string{place, of.Username, of.Password} {
			if len(text) > 12 && !strings.Contains(open, text) && strings.Contains(said, text) {
				t.Errorf("it is said %q of %q", said, text)
			}
		}
	}
}
