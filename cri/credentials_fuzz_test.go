package cri

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// FuzzLogins: no content of a pull secret causes a crash or shows in an error. Each login belongs
// to the secret, and matches only images below its place.
func FuzzLogins(f *testing.F) {
	for _, text := range []string{
		`{"auths":{"https://index.docker.io/v1/":{"auth":"dXNlcjpwYXNz"},"*.b.io:5000/x":{"username":"u"}}}`,
		`{"registry.io":{"username":"u","password":"geheim"}}`, `{"auths":{"[":{},"http://%zz":{},"":{}}}`,
		`{"auths":null}`, `{"auths":{"a.io":{"auth":"geheim!"}}`, `[`, ``,
	} {
		f.Add([]byte(text), "registry.io/app:1")
	}
	f.Fuzz(func(t *testing.T, text []byte, image string) {
		for kind, key := range map[v1.SecretType]string{
			v1.SecretTypeDockerConfigJson: v1.DockerConfigJsonKey,
			v1.SecretTypeDockercfg:        v1.DockerConfigKey,
		} {
			s := &v1.Secret{Type: kind, Data: map[string][]byte{key: text}}
			s.Name, s.Namespace, s.UID = "s", "n", "u"
			all, err := secretLogins([]*v1.Secret{s})
			if err != nil && len(text) > 3 && strings.Contains(err.Error(), string(text)) {
				t.Errorf("%q tells of the secret", err)
			}
			for _, l := range all {
				if l.Holder.Kind != HolderSecret || l.Holder.UID != "u" || l.Holder.Hash == "" ||
					l.Auth == nil {
					t.Errorf("%+v is whose?", l)
				}
			}
			for _, l := range loginsFor(image, all) {
				if l.Place != defaultRegistry && !Matches(l.Place, image) {
					t.Errorf("the login of %q is for %q", l.Place, image)
				}
			}
		}
	})
}
