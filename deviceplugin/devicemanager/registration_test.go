package devicemanager

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerWith sends one registration as a plugin would.
func registerWith(t *testing.T, dir, version, endpoint, resource string) error {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+filepath.Join(dir, SocketName),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(conn).Register(ctx, &v1beta1.RegisterRequest{
		Version: version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}

func TestBadRegistrations(t *testing.T) {
	r := newRig(t, Config{})
	const plainName = "give the name of the plugin's socket in the device plugin directory, " +
		"without a path"
	const otherName = ": choose a name like vendor.com/device, with a domain that is not " +
		"kubernetes.io"
	for name, tc := range map[string]struct{ version, endpoint, resource, want string }{
		"older version": {"v1alpha1", "a.sock", gpu,
			`requested API version "v1alpha1" is not supported by kubelet. Supported version is ` +
				`["v1beta1"]`},
		"no version": {"", "a.sock", gpu,
			`requested API version "" is not supported by kubelet. Supported version is ` +
				`["v1beta1"]`},
		"native resource": {"v1beta1", "a.sock", "cpu",
			`the ResourceName "cpu" is invalid` + otherName},
		"of kubernetes": {"v1beta1", "a.sock", "kubernetes.io/x",
			`the ResourceName "kubernetes.io/x" is invalid` + otherName},
		"near kubernetes": {"v1beta1", "a.sock", "mykubernetes.io/x",
			`the ResourceName "mykubernetes.io/x" is invalid` + otherName},
		"quota item": {"v1beta1", "a.sock", "requests.a.com/x",
			`the ResourceName "requests.a.com/x" is invalid` + otherName},
		"no name": {"v1beta1", "a.sock", "a.com/",
			`the ResourceName "a.com/" is invalid` + otherName},
		"spaces": {"v1beta1", "a.sock", "a.com/x y",
			`the ResourceName "a.com/x y" is invalid` + otherName},
		"above": {"v1beta1", "../a.sock", gpu, `the endpoint "../a.sock" is invalid: ` + plainName},
		"absolute": {"v1beta1", "/tmp/a.sock", gpu,
			`the endpoint "/tmp/a.sock" is invalid: ` + plainName},
		"below": {"v1beta1", "a/b.sock", gpu,
			`the endpoint "a/b.sock" is invalid: ` + plainName},
		"directory": {"v1beta1", "..", gpu, `the endpoint ".." is invalid: ` + plainName},
		"none":      {"v1beta1", "", gpu, `the endpoint "" is invalid: ` + plainName},
		"the kubelet's own": {"v1beta1", SocketName, gpu,
			`the endpoint "kubelet.sock" is invalid: it is the registration socket itself`},
	} {
		t.Run(name, func(t *testing.T) {
			err := registerWith(t, r.dir, tc.version, tc.endpoint, tc.resource)
			if got := status.Convert(err).Message(); got != tc.want {
				t.Errorf("error %q, want %q", got, tc.want)
			}
		})
	}
	err := registerWith(t, r.dir, v1beta1.Version, strings.Repeat("x", 100), gpu)
	if err == nil || !strings.Contains(err.Error(), "unix sockets allow 107") {
		t.Errorf("a long name gives %v", err)
	}
	if inv := r.Inventory(); len(inv.Resources) > 0 {
		t.Errorf("refused registrations are in the inventory: %+v", inv.Resources)
	}
}

func TestRunReportsABadDirectory(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an empty directory is accepted")
	}
	p, err := New(Config{Dirs: Dirs{Plugins: filepath.Join("/tmp", strings.Repeat("n", 120))}})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "choose a shorter root directory") {
		t.Errorf("a path that is too long gives %v", err)
	}
}
