package actuator

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/userns"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// The runtime class determines the handler, and the handler whether the pod may have a user
// namespace.
func TestHandler(t *testing.T) {
	var events []string
	users, err := userns.New(userns.Config{Pods: t.TempDir(), PerPod: 65536,
		Host: userns.Block{First: 65536, Length: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	server := &none{}
	a := New(Config{
		Objects: server,
		Node: Node{Network: up, Users: users, Handlers: []cri.RuntimeHandler{
			{Name: "", UserNamespaces: true}, {Name: "runsc"}}},
		Tell: Tell{Event: func(_ *v1.Pod, _, reason, message string) {
			events = append(events, reason+" "+message)
		}},
	})
	for _, tt := range []struct {
		class     string
		hostUsers bool
		want      string // of the handler; with a colon, of the error
	}{
		{"", true, ""},
		{"gvisor", true, "runsc"},
		{"", false, ""},
		{"gvisor", false, `hostUsers: runtime handler "runsc" does not support user namespaces`},
		{"none", true, `spec.runtimeClassName: no such class`},
	} {
		pod := podtest.New("u", podtest.Spec(v1.PodSpec{HostUsers: &tt.hostUsers}))
		if tt.class != "" {
			pod.Spec.RuntimeClassName = ptr.To(tt.class)
		}
		b := build{Actuator: a, pod: pod, node: a.cfg.Node, say: about{pod, a.cfg.Tell, t.Context().Err}}
		handler, err := b.handler(t.Context())
		if err == nil {
			err = b.checkUsers(handler)
		}
		if strings.Contains(tt.want, ":") {
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%+v: %v", tt, err)
			}
			events = nil
			if _, err := b.createSandbox(t.Context(), 0); err == nil || len(events) != 1 ||
				!strings.HasPrefix(events[0], "FailedCreatePodSandBox ") {
				t.Errorf("%+v: %v and the events %q", tt, err, events)
			}
			continue
		}
		if handler != tt.want || err != nil {
			t.Errorf("%+v: %q, %v", tt, handler, err)
		}
		b, err = b.withUsers()
		if (b.node.Security.IDs == nil) != tt.hostUsers || err != nil {
			t.Errorf("%+v: ids %v, %v", tt, b.node.Security.IDs, err)
		}
	}
}

// Recursive read-only mounts depend on the handler, which is only looked up if a mount asks for
// them.
func TestRecursiveReadOnly(t *testing.T) {
	a := New(Config{Objects: &none{}, Node: Node{Network: up, Handlers: []cri.RuntimeHandler{
		{RecursiveReadOnlyMounts: true}, {Name: "runsc"}}}})
	for _, tt := range []struct {
		class  string
		wanted bool
		can    bool
		lacks  string
	}{
		{"", true, true, ""}, {"gvisor", true, false, ""}, {"none", false, false, ""},
		{"none", true, false, "no such class"},
	} {
		pod, c := &v1.Pod{}, v1.Container{VolumeMounts: []v1.VolumeMount{{}}}
		if tt.class != "" {
			pod.Spec.RuntimeClassName = &tt.class
		}
		if tt.wanted {
			c.VolumeMounts[0].RecursiveReadOnly = ptr.To(v1.RecursiveReadOnlyIfPossible)
		}
		b := build{Actuator: a, pod: pod, node: a.cfg.Node, say: about{pod, a.cfg.Tell, t.Context().Err}}
		can, err := start{build: b, c: &c}.recursiveReadOnly(t.Context())
		if can != tt.can || (err != nil) != (tt.lacks != "") ||
			err != nil && !strings.Contains(err.Error(), tt.lacks) {
			t.Errorf("%+v: %v, %v", tt, can, err)
		}
	}
}

// asked is an image service that has every image, and keeps the runtime handlers it was asked for.
type asked struct {
	cri.ImageService
	handlers *[]string
}

func (a asked) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (
	*runtimeapi.ImageStatusResponse, error) {
	*a.handlers = append(*a.handlers, spec.Image+" for "+spec.RuntimeHandler)
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: spec.Image}}, nil
}

// TestImageHandler: with the node's setting, images of volumes are those of the pod's runtime handler.
func TestImageHandler(t *testing.T) {
	for _, tt := range []struct {
		on    bool
		class string
		want  string
	}{
		{false, "", ""}, {false, "gvisor", ""}, {true, "", ""}, {true, "gvisor", "runsc"},
	} {
		var handlers []string
		a := New(Config{Objects: &none{}, Node: Node{Network: up, ImageHandlers: tt.on},
			Images: cri.NewImages(asked{handlers: &handlers}, cri.ImagesConfig{}),
			Tell:   Tell{Event: func(*v1.Pod, string, string, string) {}}})
		pod := podtest.New("u", podtest.Containers("c"), podtest.Mounts(v1.Volume{Name: "v",
			VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "data:1"}}}))
		if tt.class != "" {
			pod.Spec.RuntimeClassName = &tt.class
		}
		b := build{Actuator: a, pod: pod, node: a.cfg.Node}
		s := start{build: b, c: &pod.Spec.Containers[0]}
		var err error
		if s.imageHandler, err = b.imageHandler(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = s.imageVolumes(t.Context(), func() {})
		if want := []string{"data:1 for " + tt.want}; !slices.Equal(handlers, want) || err != nil {
			t.Errorf("%+v: the runtime was asked %q, want %q (%v)", tt, handlers, want, err)
		}
	}
}
