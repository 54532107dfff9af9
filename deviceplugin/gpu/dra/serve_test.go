package dra

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	health "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/gpu"
	"github.com/numalet/numalet/deviceplugin/gpu/mock"
	"github.com/numalet/numalet/deviceplugin/socket"
	"github.com/numalet/numalet/test/scratch"
)

// served is a driver that runs, seen through its sockets and its API server.
type served struct {
	root   string
	rig    *mock.Rig
	client *fake.Clientset
	end    func() error

	mu   sync.Mutex
	said []string
}

func (s *served) log(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

// config is that of a driver on a simulated machine with a node of its own.
func (s *served) config() Config {
	set := gpu.Defaults()
	set.CDI.Dir = filepath.Join(s.root, "cdi")
	return Config{Config: gpu.Config{Driver: s.rig, Settings: set, Interval: 20 * time.Millisecond,
		Log: s.log}, Claims: claimsOf(s.root, s.client)}
}

func prepareServed(t *testing.T) *served {
	return &served{root: scratch.Dir(t), rig: rigOf(t, "dgxh100"), client: fake.NewClientset(
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "node-uid"}})}
}

func (s *served) start(t *testing.T) {
	t.Helper()
	d, err := New(s.config())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	s.end = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
}

// eventually waits until check finds nothing wrong.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if err = check(); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: %v", what, err)
}

// taints returns the taints of a device in the slices, and the number of devices.
func (s *served) taints(ctx context.Context, device string) (taints string, count int, err error) {
	list, err := s.client.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", 0, err
	}
	for _, slice := range list.Items {
		count += len(slice.Spec.Devices)
		for _, d := range slice.Spec.Devices {
			if d.Name == device {
				for _, taint := range d.Taints {
					taints += taint.Key + " "
				}
			}
		}
	}
	return taints, count, nil
}

// The driver registers, publishes, tells of health, prepares, and leaves no socket.
func TestServe(t *testing.T) {
	s := prepareServed(t)
	s.start(t)
	eventually(t, "the slices", func() error {
		if _, n, err := s.taints(t.Context(), ""); n != 8 {
			return fmt.Errorf("%d devices, %v", n, err)
		}
		return nil
	})
	registry, err := socket.Client(filepath.Join(s.root, "plugins_registry",
		gpu.DriverName+"-reg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	info, err := registerapi.NewRegistrationClient(registry).GetInfo(t.Context(),
		&registerapi.InfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(info.GetSupportedVersions(), " "); info.GetName() != gpu.DriverName ||
		got != "v1.DRAPlugin v1beta1.DRAPlugin v1.DRAResourceHealth v1alpha1.DRAResourceHealth" {
		t.Errorf("%s has %s", info.GetName(), got)
	}
	conn, err := socket.Client(info.GetEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	reports, err := health.NewDRAResourceHealthClient(conn).NodeWatchResources(t.Context(),
		&health.NodeWatchResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.rig.Do("lose 3"); err != nil {
		t.Fatal(err)
	}
	for lost := false; !lost; {
		report, err := reports.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range report.GetDevices() {
			lost = lost || d.GetDevice().GetDeviceName() == "gpu-3" &&
				d.GetHealth() == health.HealthStatus_UNHEALTHY &&
				strings.Contains(d.GetMessage(), "FellOffBus")
		}
	}
	eventually(t, "the taint", func() error {
		if got, _, err := s.taints(t.Context(), "gpu-3"); got != gpu.DriverName+"/gpu-lost " {
			return fmt.Errorf("it is %q, %v", got, err)
		}
		return nil
	})
	claim, err := s.client.ResourceV1().ResourceClaims("default").Create(t.Context(),
		claimOf("pair", "gpu-1", "gpu-2"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := []*drav1.Claim{{Namespace: claim.Namespace, Name: claim.Name, Uid: string(claim.UID)}}
	answer, err := drav1.NewDRAPluginClient(conn).NodePrepareResources(t.Context(),
		&drav1.NodePrepareResourcesRequest{Claims: names})
	got := answer.GetClaims()["uid-pair"]
	if err != nil || got.GetError() != "" || len(got.GetDevices()) != 2 {
		t.Fatalf("%+v, %v", answer, err)
	}
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"plugins_registry", "plugins/" + gpu.DriverName} {
		found, err := filepath.Glob(filepath.Join(s.root, dir, "*.sock"))
		if err != nil || len(found) > 0 {
			t.Errorf("left behind: %q, %v", found, err)
		}
	}
}

// What is wrong with the options is named.
func TestOptions(t *testing.T) {
	for _, test := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Claims.Driver = "GPU" }, "--dra-driver"},
		{func(c *Config) {
			c.Settings.Shared = []gpu.Sharing{{Resource: "nvidia.com/gpu",
				As: "nvidia.com/gpu", Replicas: 2}}
		}, "--dra-shares"},
		{func(c *Config) { c.Settings.MIG = gpu.MIGMixed }, "--mig-strategy"},
	} {
		cfg := prepareServed(t).config()
		test.change(&cfg)
		_, err := New(cfg)
		refused(t, err, test.want)
	}
	for text, ok := range map[string]bool{"none": true, "memory": true, "unlimited": true, "4": true,
		"0": false, "-1": false, "1001": false, "all": false} {
		if _, err := ParseShares(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}
