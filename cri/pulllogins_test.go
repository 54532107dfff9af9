package cri

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// notes is a PullRecords that records its calls and grants access to holders of a secret.
type notes struct {
	reported []string
	fails    error
	ask      bool // whether to ask for the pod's holders
}

func (n *notes) Pulling(image string) error {
	n.reported = append(n.reported, "pulling "+image)
	return n.fails
}

func (n *notes) Pulled(image, id string, by Holder) {
	n.reported = append(n.reported, "pulled "+image+" "+id+" "+by.Kind+by.Name)
}

func (n *notes) Failed(image string) { n.reported = append(n.reported, "failed "+image) }

func (n *notes) Accessible(_, _ string, held func() []Holder) bool {
	return !n.ask || slices.ContainsFunc(held(),
		func(h Holder) bool { return h.Kind == HolderSecret })
}

// TestRecords: each pull is recorded before and afterwards, with the login that worked. A present
// image is pulled again for a pod that may not use it, and counts as absent if the policy is Never.
func TestRecords(t *testing.T) {
	config := dockerConfig(`{"registry.example":{"username":"host","password":"p"}}`)
	node := [][]Login{{{Place: "registry.example", Auth: &runtimeapi.AuthConfig{Username: "node"}}}}
	const image = "registry.example/app:1"
	for name, test := range map[string]struct {
		good     string
		policy   v1.PullPolicy
		pod      []*v1.Secret
		here     bool
		fails    error
		tried    string
		reported []string
		reason   string
	}{
		"the pod's login": {"host", "", []*v1.Secret{config}, false, nil, "host",
			[]string{"pulling " + image, "pulled " + image + " sha256:" + image + " secretpull"}, ""},
		"the node's": {"node", "", []*v1.Secret{config}, false, nil, "host node",
			[]string{"pulling " + image, "pulled " + image + " sha256:" + image + " "}, ""},
		"no login is good": {"x", "", nil, false, nil, "node",
			[]string{"pulling " + image, "failed " + image}, ReasonImagePull},
		"no record": {"node", "", nil, false, errors.New("disk full"), "",
			[]string{"pulling " + image}, ReasonImagePull},
		"here, with the login": {"x", "", []*v1.Secret{config}, true, nil, "", nil, ""},
		"here, without": {"node", "", nil, true, nil, "node",
			[]string{"pulling " + image, "pulled " + image + " sha256:" + image + " "}, ""},
		"here, without, never": {"node", v1.PullNever, nil, true, nil, "", nil,
			ReasonImageNeverPull},
	} {
		service := &guarded{registry: &registry{}, good: test.good}
		if test.here {
			service.addLocked(image)
		}
		records := &notes{fails: test.fails, ask: true}
		m := NewImages(service, ImagesConfig{
			Records: records,
			Logins: func(context.Context, *v1.Pod, string) ([][]Login, error) {
				return node, errors.New("a provider is away")
			},
		})
		_, err := m.Ensure(t.Context(), ImageRequest{
			Pod:       &v1.Pod{},
			Container: &v1.Container{Image: image, ImagePullPolicy: test.policy},
			Secrets: func(context.Context) ([]*v1.Secret, []string) {
				return test.pod, nil
			},
		})
		var why *StartError
		reason := ""
		if errors.As(err, &why) {
			reason = why.Reason
		}
		if got := strings.Join(service.tried, " "); got != test.tried || reason != test.reason ||
			!slices.Equal(records.reported, test.reported) {
			t.Errorf("%s: tried %q, told %q, %v", name, got, records.reported, err)
		}
		if test.good == "x" && err != nil && !strings.Contains(err.Error(), "a provider is away") {
			t.Errorf("%s: %v does not say what is missing", name, err)
		}
	}
}

// TestWholeNames: logins are asked for by the image's full name, without tag and digest.
func TestWholeNames(t *testing.T) {
	for image, want := range map[string]string{
		"app":                      "docker.io/library/app",
		"team/app:2":               "docker.io/team/app",
		"registry.example:5000/a":  "registry.example:5000/a",
		"registry.example/b/c:1.0": "registry.example/b/c",
		"registry.example/d@sha256:" + strings.Repeat("0", 64): "registry.example/d",
	} {
		var got string
		m := NewImages(&registry{}, ImagesConfig{
			Logins: func(_ context.Context, _ *v1.Pod, name string) ([][]Login, error) {
				got = name
				return nil, nil
			},
		})
		_, err := m.Ensure(t.Context(), ImageRequest{
			Pod: &v1.Pod{}, Container: &v1.Container{Image: image}})
		if got != want || err != nil {
			t.Errorf("%s: asked for %s, %v; want %s", image, got, err, want)
		}
	}
}
