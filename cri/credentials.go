package cri

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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

// defaultRegistry is the registry of images whose names have none.
const defaultRegistry = "index.docker.io"

// Login is valid for the images below Place: HOST[:PORT][/PATH]. Parts of the host may be
// wildcards.
type Login struct {
	Place  string
	Auth   *runtimeapi.AuthConfig
	Holder Holder
}

// Kinds of holders.
const (
	HolderSecret         = "secret"
	HolderServiceAccount = "serviceAccount"
)

// Holder identifies the owner of a login. The zero value is the node, whose logins all its pods may
// use.
type Holder struct {
	Kind                 string
	UID, Namespace, Name string
	// Hash is the hash of the login if a secret holds it.
	Hash string
}

// loginsFor returns the logins for an image, given by its full name without tag and digest. They
// are ordered by group, then by length of the place, the longest first.
func loginsFor(image string, groups ...[]Login) (out []Login) {
	for _, group := range groups {
		out = append(out, best(image, group)...)
	}
	return out
}

func best(image string, all []Login) (out []Login) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b Login) int { return cmp.Compare(b.Place, a.Place) })
	var standard []Login
	for _, l := range all {
		switch {
		case Matches(l.Place, image):
			out = append(out, l)
		case l.Place == defaultRegistry:
			standard = append(standard, l)
		}
	}
	if len(out) == 0 && inDefaultRegistry(image) {
		out = standard
	}
	return out
}

// secretLogins returns the logins in a pod's secrets. The error names the secrets that cannot be
// read; the logins of the others are returned all the same.
func secretLogins(secrets []*v1.Secret) (out []Login, err error) {
	var errs []error
	for _, s := range secrets {
		var found []Login
		switch s.Type {
		case v1.SecretTypeDockerConfigJson:
			found, err = DockerConfig(s.Data[v1.DockerConfigJsonKey])
		case v1.SecretTypeDockercfg:
			found, err = OldDockerConfig(s.Data[v1.DockerConfigKey])
		default:
			err = fmt.Errorf("type %q is not one for image pulls; use %s", s.Type,
				v1.SecretTypeDockerConfigJson)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("secret %q: %w", s.Name, err))
		}
		for _, l := range found {
			l.Holder = Holder{Kind: HolderSecret, UID: string(s.UID), Namespace: s.Namespace,
				Name: s.Name, Hash: l.Holder.Hash}
			out = append(out, l)
		}
	}
	return out, errors.Join(errs...)
}

// login is an entry of Docker's configuration file.
type login struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	Email         string `json:"email,omitempty"`
	Auth          string `json:"auth,omitempty"` // base64 of USERNAME:PASSWORD, wins over both
	IdentityToken string `json:"identitytoken,omitempty"`
	RegistryToken string `json:"registrytoken,omitempty"`
}

// DockerConfig reads Docker's configuration file, config.json.
func DockerConfig(text []byte) ([]Login, error) {
	var file struct {
		Auths map[string]login `json:"auths"`
	}
	err := decodeCredentials(text, &file)
	return logins(file.Auths), err
}

// OldDockerConfig reads Docker's older configuration file, .dockercfg.
func OldDockerConfig(text []byte) ([]Login, error) {
	var file map[string]login
	err := decodeCredentials(text, &file)
	return logins(file), err
}

// logins skips entries that cannot be read. It sets only the hash of a login's holder.
func logins(all map[string]login) (out []Login) {
	for registry, l := range all {
		place, err := placeOf(registry)
		if err != nil {
			continue
		}
		if l.Auth != "" {
			if l.Username, l.Password, err = splitAuth(l.Auth); err != nil {
				continue
			}
		}
		out = append(out, Login{place, &runtimeapi.AuthConfig{
			Username: l.Username, Password: l.Password,
			IdentityToken: l.IdentityToken, RegistryToken: l.RegistryToken,
		}, Holder{Hash: l.hash()}})
	}
	return out
}

// hash identifies a login. It equals the kubelet's, so that each agent recognises the logins that
// the other pulled with: it covers the user and password in Auth, and not how Auth encodes them.
func (l login) hash() string {
	l.Auth = ""
	text, err := json.Marshal(l)
	if err != nil {
		return "" // text cannot fail to be encoded
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// decodeCredentials keeps the content out of the error, because it is secret.
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

// placeOf returns the registry as image names have it: Docker's own entries add a scheme and a
// version.
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

// Matches reports whether the image is below the place.
func Matches(place, image string) bool {
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

// inDefaultRegistry reports whether the image's name starts with no other registry.
func inDefaultRegistry(image string) bool {
	first, _, more := strings.Cut(image, "/")
	return !more || first == "docker.io" || first == defaultRegistry ||
		first != "" && !strings.ContainsAny(first, ".:")
}
