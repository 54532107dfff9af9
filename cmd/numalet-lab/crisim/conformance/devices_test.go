package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// asks holds what a container gets of the host.
type asks struct {
	devices []*runtimeapi.Device
	mounts  []*runtimeapi.Mount
	cdi     string
	env     *runtimeapi.KeyValue
}

func variable(name, value string) asks {
	return asks{env: &runtimeapi.KeyValue{Key: name, Value: []byte(value)}}
}

func device(host, container, permissions string) asks {
	return asks{devices: []*runtimeapi.Device{
		{HostPath: host, ContainerPath: container, Permissions: permissions},
	}}
}

func mount(host, container string) asks {
	return asks{mounts: []*runtimeapi.Mount{{HostPath: host, ContainerPath: container}}}
}

// imageRefused starts the error for images that cannot be mounted.
const imageRefused = "create: failed to mount image volume: ImageVolumeMountFailed: "

func imageMount(container, ref, path string) asks {
	return asks{mounts: []*runtimeapi.Mount{{ContainerPath: container, Readonly: true,
		Image: &runtimeapi.ImageSpec{Image: ref}, ImageSubPath: path}}}
}

// wrongDevices: answers of device plugins that name things the host lacks fail in the same call as
// with containerd, in its words.
func wrongDevices(t *testing.T, s *suite) {
	p := s.sandbox(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, tc := range []struct {
		name string
		asks asks
		want string // the call that fails and its error; empty: it runs
	}{
		{"a device", device("/dev/null", "/dev/x", "rw"), ""},
		{"a directory as a device", device(dir, "/dev/x", "rw"), ""},
		{"a device that is not there", device("/dev/nosuch", "/dev/x", "rw"),
			"create: failed to generate spec: lstat /dev/nosuch: no such file or directory"},
		{"a device without a path", device("", "/dev/x", "rw"),
			"create: failed to generate spec: lstat : no such file or directory"},
		{"a file as a device", device(file, "/dev/x", "rw"), "create: not a device node"},
		{"no permissions", device("/dev/null", "/dev/x", ""),
			"start: device access at 1 field cannot be empty"},
		{"permissions in another order", device("/dev/null", "/dev/x", "mrw"), ""},
		{"a permission that there is not", device("/dev/null", "/dev/x", "rwx"), ""},
		{"permissions in capitals", device("/dev/null", "/dev/x", "RW"), ""},
		{"a word as permissions", device("/dev/null", "/dev/x", "all"), ""},
		{"a CDI device that nobody names", asks{cdi: "example.com/gpu=nosuch"},
			"create: CDI device injection failed: unresolvable CDI devices example.com/gpu=nosuch"},
		{"a CDI device that is no name", asks{cdi: "nonsense"},
			"create: CDI device injection failed: unresolvable CDI devices nonsense"},
		{"a mount", mount(dir, "/x"), ""},
		{"a mount of what is not there", mount(filepath.Join(dir, "new"), "/x"), ""},
		{"a mount below a file", mount(filepath.Join(file, "below"), "/x"),
			"create: failed to stat"},
		{"a mount of nothing", mount("", "/x"), `create: failed to mkdir ""`},
		{"a mount of a relative path", mount("relative/x", "/x"), "start: error mounting"},
		{"an image", imageMount("/x", s.ref, ""), ""},
		{"a path out of an image", imageMount("/x", s.ref, "../x"), imageRefused},
		{"no image", imageMount("/x", "", ""), imageRefused},
		{"a writable image", asks{mounts: []*runtimeapi.Mount{{ContainerPath: "/x",
			Image: &runtimeapi.ImageSpec{Image: s.ref}}}}, imageRefused},
		{"an image and a path", asks{mounts: []*runtimeapi.Mount{{ContainerPath: "/x",
			HostPath: dir, Readonly: true, Image: &runtimeapi.ImageSpec{Image: s.ref}}}},
			imageRefused},
		{"a mount on the root", mount(dir, "/"), "start: open /proc/self/fd"},
		{"a variable whose name has a value", variable("A=B", "c"), ""},
		{"a variable without a name", variable("", "c"), "start: name can't be empty"},
		{"a NUL in a variable", variable("A", "b\x00c"), "start: value can't contain null"},
		{"a mount to nowhere", mount(dir, ""), "start: runc create failed"},
	} {
		if got := p.outcome(fmt.Sprint("c", i), tc.asks); got != tc.want &&
			(tc.want == "" || !reports(got, tc.want)) {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}

// lacksImage: mounting an image that the runtime does not have fails with NotFound.
func lacksImage(t *testing.T, s *suite) {
	ctx, cancel := s.context(t)
	defer cancel()
	p := s.sandbox(t)
	config := p.containerConfig("c", p.opts.Forever)
	config.Mounts = imageMount("/x", "registry.test/none:1", "").mounts
	_, err := s.client.Runtime().CreateContainer(ctx, p.id, config, p.config)
	wantCode(t, "create", err, codes.NotFound)
	if got := status.Convert(err).Message(); !reports("create: "+got, imageRefused) {
		t.Errorf("refused with %q", got)
	}
}

// told reports whether the right call failed with the right message.
func reports(got, want string) bool {
	call, words, _ := strings.Cut(want, ": ")
	return strings.HasPrefix(got, call+": ") && strings.Contains(got, words)
}

// outcome creates and starts a container with these things. It returns the call that failed with
// code Unknown, and its message.
func (p *pod) outcome(name string, a asks) string {
	ctx, cancel := p.context(p.t)
	defer cancel()
	config := p.containerConfig(name, p.opts.Forever)
	config.Devices, config.Mounts = a.devices, a.mounts
	if a.cdi != "" {
		config.CDIDevices = []*runtimeapi.CDIDevice{{Name: a.cdi}}
	}
	if a.env != nil {
		config.Envs = append(config.Envs, a.env)
	}
	run := p.client.Runtime()
	id, err := run.CreateContainer(ctx, p.id, config, p.config)
	call := "create"
	if err == nil {
		call, err = "start", run.StartContainer(ctx, id)
		defer func() {
			if err := run.RemoveContainer(ctx, id); err != nil {
				p.t.Error(err)
			}
		}()
	}
	if err == nil {
		return ""
	}
	wantCode(p.t, call+" "+name, err, codes.Unknown)
	return call + ": " + status.Convert(err).Message()
}
