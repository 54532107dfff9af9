package cri

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func dockerConfig(auths string) *v1.Secret {
	return &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull"},
		Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`{"auths":` + auths + `}`)}}
}

// Logins match images by Kubernetes' rule
// (https://kubernetes.io/docs/concepts/containers/images/#config-json).
func TestCredentials(t *testing.T) {
	user := func(name string) string { return `{"username":"` + name + `","password":"p"}` }
	for _, test := range []struct{ image, auths, want string }{
		{"registry.example/team/app:1", `{"registry.example":` + user("host") + `}`, "host"},
		{"registry.example/team/app:1", `{"registry.example/team":` + user("team") +
			`,"registry.example":` + user("host") + `,"registry.example/other":` + user("x") + `}`,
			"team host"},
		{"registry.example:5000/app", `{"registry.example":` + user("x") +
			`,"registry.example:5000":` + user("port") + `}`, "port"},
		{"a.b.example/app", `{"*.b.example":` + user("one") + `,"*.example":` + user("x") +
			`,"*.*.example":` + user("two") + `}`, "one two"},
		{"registry.example/app", `{"https://registry.example/v1/":` + user("old") + `}`, "old"},
		{"registry.example/app@sha256:0123", `{"http://registry.example/":` + user("slash") + `}`,
			"slash"},
		{"library/app", `{"https://index.docker.io/v1/":` + user("hub") + `}`, "hub"},
		{"app:1", `{"index.docker.io":` + user("hub") + `}`, "hub"},
		{"docker.io/team/app", `{"https://index.docker.io/v1/":` + user("hub") + `}`, "hub"},
		{"registry.example/app", `{"https://index.docker.io/v1/":` + user("x") + `}`, ""},
		{"app:1", `{"docker.io":` + user("io") + `,"docker.io/library":` + user("own") + `}`,
			"own io"},
		{"registry.example/app:1", `{"registry.example/app:1":` + user("x") + `}`, ""},
		{"registry.example/app", `{"registry.example":{"auth":"` +
			base64.StdEncoding.EncodeToString([]byte("me:with:colon")) + `"}}`, "me"},
		{"registry.example/app", `{"registry.example":{"auth":"no base64"}}`, ""},
		{"registry.example/app", `{"registry[":` + user("x") + `}`, ""},
		{"registry.example/app", `null`, ""},
	} {
		logins, err := secretLogins([]*v1.Secret{dockerConfig(test.auths)})
		var names []string
		for _, l := range loginsFor(Repository(test.image), logins) {
			names = append(names, l.Auth.Username)
		}
		if got := strings.Join(names, " "); got != test.want || err != nil {
			t.Errorf("%s with %s: got %q, %v; want %q", test.image, test.auths, got, err, test.want)
		}
	}
}

func TestCredentialsOfBothTypes(t *testing.T) {
	old := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Type: v1.SecretTypeDockercfg,
		Data: map[string][]byte{v1.DockerConfigKey: []byte(
			`{"registry.example":{"username":"u","password":"p","identitytoken":"i"}}`)}}
	broken := dockerConfig(`{"registry.example": "hunter2"`)
	opaque := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "opaque"}, Type: v1.SecretTypeOpaque}
	got, err := secretLogins([]*v1.Secret{broken, old, opaque})
	if len(got) != 1 || got[0].Auth.Username != "u" || got[0].Auth.Password != "p" ||
		got[0].Auth.IdentityToken != "i" || got[0].Holder.Name != "old" {
		t.Errorf("got %v", got)
	}
	if err == nil || !strings.Contains(err.Error(), `secret "pull": its content is not the JSON`) ||
		!strings.Contains(err.Error(), `secret "opaque": type "Opaque" is not one for image pulls`) ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// guarded is an image service that accepts one user.
type guarded struct {
	*registry
	good  string
	tried []string
}

func (l *guarded) PullImage(ctx context.Context, image *runtimeapi.ImageSpec,
	auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	l.tried = append(l.tried, auth.GetUsername())
	if auth.GetUsername() != l.good {
		return "", errors.New("no entry for " + auth.GetUsername())
	}
	return l.registry.PullImage(ctx, image, auth, sandbox)
}

// Logins are tried in turn and are asked for only before a pull. Missing secrets are reported when
// the pull fails.
func TestPullWithSecrets(t *testing.T) {
	config := dockerConfig(`{"registry.example":{"username":"host","password":"p"},` +
		`"registry.example/app":{"username":"app","password":"p"}}`)
	const missing = "Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull " +
		"secrets (gone); attempting to pull the image may not succeed."
	for name, test := range map[string]struct {
		good     string
		found    []*v1.Secret
		tried    string
		reported bool
	}{
		"the second login":  {"host", []*v1.Secret{config}, "app host", false},
		"the first":         {"app", []*v1.Secret{config}, "app", false},
		"none is good":      {"other", []*v1.Secret{config}, "app host", true},
		"without a login":   {"", nil, "", false},
		"a login is wanted": {"other", nil, "", true},
	} {
		service := &guarded{registry: &registry{}, good: test.good}
		m := NewImages(service, ImagesConfig{})
		asked, reported := 0, false
		ask := func() error {
			_, err := m.Ensure(t.Context(), ImageRequest{
				Pod:       &v1.Pod{},
				Container: &v1.Container{Image: "registry.example/app:1"},
				Secrets: func(context.Context) ([]*v1.Secret, []string) {
					asked++
					return test.found, []string{"gone"}
				},
				Report: func(eventType, reason, message string) {
					reported = reported || eventType+" "+reason+" "+message == missing
				},
			})
			return err
		}
		err := ask()
		if got := strings.Join(service.tried, " "); got != test.tried || reported != test.reported ||
			(err != nil) != test.reported {
			t.Errorf("%s: tried %q, told %v, %v", name, got, reported, err)
		}
		if err == nil && (ask() != nil || asked != 1) {
			t.Errorf("%s: asked for secrets %d times for one pull", name, asked)
		}
	}
}
