package devicemanager

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// Two messages of one stream are read as the protobuf library reads them.
func FuzzListAndWatch(f *testing.F) {
	for _, pair := range [][2]string{
		{"a b@0 c!", "a b@0! c!"}, {"g-10 g-9", "g-9 g-10"}, {"a a!", ""}, {"a@5", "a@1"},
	} {
		f.Add(message(f, pair[0]), message(f, pair[1]))
	}
	f.Add([]byte("\x0a\x03\x0a\x01a\x12\x01b"), []byte("\x0a\x85\x00"))
	f.Add([]byte("\x0a\x04\x1a\x02\x0a\x00"), []byte("\x0a\x05\x0a\x01a\x12\x00"))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		l := newLister(topology.NewNodeSet(0, 1, 2))
		checkRead(t, l, first)
		checkRead(t, l, second)
	})
}

// A registration is refused, or it names a resource that plugins may serve and a socket in the
// device plugin directory.
func FuzzRegister(f *testing.F) {
	for _, endpoint := range []string{
		"a.sock", "../a.sock", "/etc/a.sock", "..", "kubelet.sock", "a\x00b", "",
	} {
		f.Add(encoded(f, &v1beta1.RegisterRequest{
			Version: v1beta1.Version, Endpoint: endpoint, ResourceName: gpu,
		}))
	}
	f.Add(encoded(f, &v1beta1.RegisterRequest{
		Version: "v1alpha", Endpoint: "a", ResourceName: "mykubernetes.io/x",
	}))
	cfg := Config{Dirs: Dirs{Plugins: "/var/lib/plugins"}}
	f.Fuzz(func(t *testing.T, raw []byte) {
		req := &v1beta1.RegisterRequest{}
		if proto.Unmarshal(raw, req) != nil {
			return
		}
		l, err := accept(cfg, req)
		if err != nil {
			if l != nil || err.Error() == "" {
				t.Errorf("%v gives %v and %v", req, l, err)
			}
			return
		}
		defer l.conn.HangUp()
		if filepath.Dir(l.socket) != "/var/lib/plugins" || l.name() == SocketName ||
			len(l.socket) > socket.MaxPath || !podspec.IsExtended(l.resource) ||
			strings.Contains(l.resource, "kubernetes.io/") || req.GetVersion() != v1beta1.Version {
			t.Errorf("%v is accepted as %q on %q", req, l.resource, l.socket)
		}
	})
}

// An answer to Allocate gives a container's answer or an error. Any preference leads to the
// requested number of devices, all free.
func FuzzAnswers(f *testing.F) {
	f.Add(encoded(f, &v1beta1.AllocateResponse{}), "")
	f.Add(encoded(f,
		&v1beta1.AllocateResponse{ContainerResponses: []*v1beta1.ContainerAllocateResponse{{
			Envs:   map[string]string{"A": "b"},
			Mounts: []*v1beta1.Mount{{HostPath: "/a", ContainerPath: "/b"}},
		}}}), "gpu-0 gpu-1")
	f.Add([]byte("\x0a\x00"), "gpu-1 gpu-1 gpu-3 nobody")
	f.Fuzz(func(t *testing.T, raw []byte, preferred string) {
		resp := &v1beta1.AllocateResponse{}
		if proto.Unmarshal(raw, resp) == nil {
			if answer, err := answerOf(resp); (answer == nil) == (err == nil) {
				t.Errorf("%v gives %v and %v", resp, answer, err)
			}
		}
		req := Request{N: 2, Hint: topology.Hint{Any: true}, Resource: Resource{
			Name: gpu, Connected: true, Options: Options{Preferred: true},
			Devices: parseDevices(t, "gpu-0 gpu-1 gpu-2 gpu-3! gpu-4"),
		}}
		ask, wanted := AdviceWanted(req)
		if !wanted {
			t.Fatal("no advice is wanted")
		}
		advice, err := ask.sift(strings.Fields(preferred), req.Resource)
		if len(advice) != req.N && err == nil {
			t.Errorf("%q is fine advice", preferred)
		}
		req.Advice = advice
		got, err := Choose(req)
		if err != nil || len(got) != req.N {
			t.Errorf("%q leads to %q, %v", preferred, got, err)
		}
		for _, id := range got {
			if d, listed := req.Resource.Find(id); !listed || !d.Healthy {
				t.Errorf("%q leads to %q", preferred, got)
			}
		}
	})
}

// A plugin of the plugin registry is refused, or it names a resource that plugins may serve and the
// path of a socket.
func FuzzFoundPlugin(f *testing.F) {
	for _, endpoint := range []string{
		"", "a.sock", "/run/../run/a.sock", "/a\x00b", "/" + strings.Repeat("x", 107),
	} {
		f.Add(gpu, endpoint, v1beta1.Version)
	}
	f.Add("cpu", "/a", v1beta1.Version)
	f.Add(gpu, "/a", "v1")
	var r registrar
	f.Fuzz(func(t *testing.T, name, endpoint, version string) {
		found := watcher.Plugin{Name: name, Endpoint: endpoint, Versions: []string{version}}
		l, err := r.acceptFound(found)
		if err != nil {
			if l != nil || err.Error() == "" {
				t.Errorf("%+v gives %v and %v", found, l, err)
			}
			return
		}
		defer l.conn.HangUp()
		if !filepath.IsAbs(l.socket) || filepath.Clean(endpoint) != l.socket ||
			len(l.socket) > socket.MaxPath || !podspec.IsExtended(l.resource) ||
			l.resource != name || version != v1beta1.Version {
			t.Errorf("%+v is accepted as %q on %q", found, l.resource, l.socket)
		}
	})
}
