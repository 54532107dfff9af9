package provider

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	credentialv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/oneline"
)

// maxCached bounds the cached answers of one provider; further ones are not kept until some expire.
const maxCached = 10_000

// cache holds a provider's answers. The zero value is ready.
type cache struct {
	mu      sync.Mutex
	answers map[cacheKey]answer
}

// cacheKey says what an answer is valid for: the kind of key, its value for an image, and the
// caller.
type cacheKey struct {
	kind       credentialv1.PluginCacheKeyType
	value, who string
}

type answer struct {
	logins []cri.Login
	until  time.Time
}

// get returns a valid answer for the image, the most specific one first.
func (c *cache) get(image, who string, now time.Time) ([]cri.Login, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, kind := range []credentialv1.PluginCacheKeyType{
		credentialv1.ImagePluginCacheKeyType, credentialv1.RegistryPluginCacheKeyType,
		credentialv1.GlobalPluginCacheKeyType,
	} {
		value, err := valueFor(kind, image)
		if err != nil {
			continue
		}
		if a, ok := c.answers[cacheKey{kind, value, who}]; ok && now.Before(a.until) {
			return a.logins, true
		}
	}
	return nil, false
}

func (c *cache) put(k cacheKey, a answer, now time.Time) {
	if !a.until.After(now) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.answers == nil {
		c.answers = map[cacheKey]answer{}
	}
	if len(c.answers) >= maxCached {
		maps.DeleteFunc(c.answers, func(_ cacheKey, a answer) bool { return !now.Before(a.until) })
	}
	if len(c.answers) < maxCached {
		c.answers[k] = a
	}
}

// valueFor returns the value of a kind of key for an image without tag and digest.
func valueFor(kind credentialv1.PluginCacheKeyType, image string) (string, error) {
	switch kind {
	case credentialv1.ImagePluginCacheKeyType:
		return image, nil
	case credentialv1.RegistryPluginCacheKeyType:
		registry, _, _ := strings.Cut(image, "/")
		return registry, nil
	case credentialv1.GlobalPluginCacheKeyType:
		return "", nil
	}
	return "", fmt.Errorf("its cacheKeyType %q is none of Image, Registry, Global",
		oneline.Cut(string(kind), maxReported))
}
