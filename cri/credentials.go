package cri

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// defaultRegistry is where images without a registry in their names are.
const defaultRegistry = "index.docker.io"

// credential is a login for the registries or repositories that place matches.
type credential struct {
	place string // host[:port][/path]; the host's parts may have wildcards
	auth  *runtimeapi.AuthConfig
}

// credentialsFor are the logins that the secrets of a pod have for an image, those of the longest
// place first. The error names the secrets that cannot be read, and does not make the rest useless.
func credentialsFor(image string, secrets []*v1.Secret) ([]*runtimeapi.AuthConfig, error) {
	var all []credential
	var errs []error
	for _, s := range secrets {
		found, err := parseCredentials(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("secret %q: %w", s.Name, err))
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b credential) int { return cmp.Compare(b.place, a.place) })
	var out, standard []*runtimeapi.AuthConfig
	for _, c := range all {
		switch {
		case matches(c.place, image):
			out = append(out, c.auth)
		case c.place == defaultRegistry:
			standard = append(standard, c.auth)
		}
	}
	if len(out) == 0 && inDefaultRegistry(image) {
		out = standard
	}
	return out, errors.Join(errs...)
}

// login is an entry of docker's configuration file.
type login struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Auth          string `json:"auth"` // base64 of USERNAME:PASSWORD; it wins
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// parseCredentials reads a secret of one of the two types for image pulls.
func parseCredentials(s *v1.Secret) ([]credential, error) {
	var logins map[string]login
	var err error
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		var file struct {
			Auths map[string]login `json:"auths"`
		}
		err = decodeCredentials(s.Data[v1.DockerConfigJsonKey], &file)
		logins = file.Auths
	case v1.SecretTypeDockercfg:
		err = decodeCredentials(s.Data[v1.DockerConfigKey], &logins)
	default:
		err = fmt.Errorf("type %q is not one for image pulls; use %s", s.Type,
			v1.SecretTypeDockerConfigJson)
	}
	if err != nil {
		return nil, err
	}
	var out []credential
	for registry, l := range logins {
		place, err := placeOf(registry)
		if err != nil {
			continue // one entry that cannot be read is none
		}
		if l.Auth != "" {
			if l.Username, l.Password, err = splitAuth(l.Auth); err != nil {
				continue
			}
		}
		out = append(out, credential{place, &runtimeapi.AuthConfig{
			Username: l.Username, Password: l.Password,
			IdentityToken: l.IdentityToken, RegistryToken: l.RegistryToken,
		}})
	}
	return out, nil
}

// decodeCredentials says nothing of the content, which is secret.
func decodeCredentials(data []byte, into any) error {
	if json.Unmarshal(data, into) != nil {
		return errors.New("its content is not the JSON of a docker configuration")
	}
	return nil
}

func splitAuth(auth string) (user, password string, err error) {
	text, err := base64.StdEncoding.DecodeString(auth)
	if err != nil {
		if text, err = base64.RawStdEncoding.DecodeString(auth); err != nil {
			return "", "", err
		}
	}
	user, password, ok := strings.Cut(string(text), ":")
	if !ok {
		return "", "", errors.New("no colon between user and password")
	}
	return user, password, nil
}

// placeOf is a registry as images name it: docker's own names of it have a scheme and a version.
func placeOf(registry string) (string, error) {
	if !strings.HasPrefix(registry, "https://") && !strings.HasPrefix(registry, "http://") {
		registry = "https://" + registry
	}
	u, err := url.Parse(registry)
	if err != nil {
		return "", err
	}
	for _, version := range []string{"/v1/", "/v2/"} {
		if rest, ok := strings.CutPrefix(u.Path, version); ok {
			u.Path = "/" + rest
		}
	}
	return u.Host + strings.TrimSuffix(u.Path, "/"), nil
}

// matches reports whether the image is below the place.
func matches(place, image string) bool {
	at, err := url.Parse("https://" + place)
	if err != nil {
		return false
	}
	of, err := url.Parse("https://" + image)
	if err != nil || !strings.HasPrefix(of.Path, at.Path) {
		return false
	}
	atHost, atPort := splitPort(at.Host)
	ofHost, ofPort := splitPort(of.Host)
	atParts, ofParts := strings.Split(atHost, "."), strings.Split(ofHost, ".")
	if atPort != ofPort || len(atParts) != len(ofParts) {
		return false
	}
	for i, part := range atParts {
		if ok, err := path.Match(part, ofParts[i]); !ok || err != nil {
			return false
		}
	}
	return true
}

func splitPort(host string) (name, port string) {
	if name, port, err := net.SplitHostPort(host); err == nil {
		return name, port
	}
	return host, ""
}

// inDefaultRegistry reports whether the image's name begins with no other registry.
func inDefaultRegistry(image string) bool {
	first, _, more := strings.Cut(image, "/")
	return !more || first == "docker.io" || first == defaultRegistry ||
		first != "" && !strings.ContainsAny(first, ".:")
}
