package drivers

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// fake is a driver that prepares all claims but the one with the UID bad.
type fake struct {
	drav1.UnimplementedDRAPluginServer
	registerapi.UnimplementedRegistrationServer
	calls int
}

func (f *fake) NodePrepareResources(_ context.Context, in *drav1.NodePrepareResourcesRequest) (
	*drav1.NodePrepareResourcesResponse, error) {
	f.calls++
	out := &drav1.NodePrepareResourcesResponse{Claims: map[string]*drav1.NodePrepareResourceResponse{}}
	for _, c := range in.GetClaims() {
		out.Claims[c.GetUid()] = &drav1.NodePrepareResourceResponse{
			Devices: []*drav1.Device{{PoolName: "pool", DeviceName: "d",
				CdiDeviceIds: []string{"a.io/x=2", "a.io/x=1"}}}}
		if c.GetUid() == "bad" {
			out.Claims["bad"] = &drav1.NodePrepareResourceResponse{Error: "no"}
		}
	}
	return out, nil
}

func (f *fake) NodeUnprepareResources(_ context.Context, in *drav1.NodeUnprepareResourcesRequest) (
	*drav1.NodeUnprepareResourcesResponse, error) {
	f.calls++
	out := &drav1.NodeUnprepareResourcesResponse{Claims: map[string]*drav1.NodeUnprepareResourceResponse{}}
	for _, c := range in.GetClaims() {
		out.Claims[c.GetUid()] = &drav1.NodeUnprepareResourceResponse{}
	}
	return out, nil
}

func (*fake) GetInfo(context.Context, *registerapi.InfoRequest) (*registerapi.PluginInfo, error) {
	return &registerapi.PluginInfo{Type: "DRAPlugin", Name: "a.io", Endpoint: "its own"}, nil
}

func (*fake) NotifyRegistrationStatus(context.Context, *registerapi.RegistrationStatus) (
	*registerapi.RegistrationStatusResponse, error) {
	return &registerapi.RegistrationStatusResponse{}, nil
}

// proxied serves a fake driver through a proxy, and returns clients of the proxy.
func proxied(t *testing.T) (*Proxy, *fake, drav1.DRAPluginClient, registerapi.RegistrationClient, sockets) {
	t.Helper()
	dir, err := os.MkdirTemp("", "nl-") // paths of sockets are short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := sockets{filepath.Join(dir, "driver"), filepath.Join(dir, "driver"),
		filepath.Join(dir, "reg"), filepath.Join(dir, "dra")}
	f, server := &fake{}, grpc.NewServer()
	drav1.RegisterDRAPluginServer(server, f)
	registerapi.RegisterRegistrationServer(server, f)
	l, err := net.Listen("unix", at.driver)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l)
	}()
	p := &Proxy{instance: "one"}
	if err := p.serve(at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.close(false); err != nil {
			t.Error(err)
		}
		server.Stop()
		<-served
	})
	plugin, err := dial(at.serves)
	if err != nil {
		t.Fatal(err)
	}
	registry, err := dial(at.registerAt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { plugin.Close(); registry.Close() })
	return p, f, drav1.NewDRAPluginClient(plugin), registerapi.NewRegistrationClient(registry), at
}

func claims(uids ...string) (out []*drav1.Claim) {
	for _, uid := range uids {
		out = append(out, &drav1.Claim{Namespace: "ns", Name: "name-" + uid, Uid: uid})
	}
	return out
}

// The agent gets the driver's answers, and the calls are recorded with them.
func TestPassed(t *testing.T) {
	p, _, plugin, registry, at := proxied(t)
	info, err := registry.GetInfo(t.Context(), &registerapi.InfoRequest{})
	if err != nil || info.GetName() != "a.io" || info.GetEndpoint() != at.serves {
		t.Errorf("it registers %v (%v)", info, err)
	}
	if _, err := registry.NotifyRegistrationStatus(t.Context(),
		&registerapi.RegistrationStatus{PluginRegistered: false, Error: "why"}); err != nil {
		t.Error(err)
	}
	answer, err := plugin.NodePrepareResources(t.Context(),
		&drav1.NodePrepareResourcesRequest{Claims: claims("good", "bad")})
	if err != nil || len(answer.GetClaims()) != 2 || answer.GetClaims()["bad"].GetError() != "no" {
		t.Fatalf("the answer is %v (%v)", answer, err)
	}
	calls := p.Calls()
	if len(calls) != 3 || calls[1].Err == nil || !strings.Contains(calls[1].Err.Error(), "why") {
		t.Fatalf("the calls are %+v", calls)
	}
	c := calls[2]
	if c.Service != "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin" && c.Service != "v1.DRAPlugin" ||
		c.Method != Prepare || len(c.Claims) != 2 || c.Claims[0].Name != "name-good" ||
		strings.Join(c.CDI["good"], " ") != "a.io/x=1 a.io/x=2" || c.Refused["bad"] != "no" ||
		c.Ended.IsZero() || c.Instance != "one" {
		t.Errorf("the call is %+v", c)
	}
	held, unknown := Held(calls)
	if len(held) != 1 || held["good"].Name != "name-good" || len(unknown) != 1 || unknown["bad"].UID != "bad" {
		t.Errorf("held is %v, unknown %v", held, unknown)
	}
	if _, err := plugin.NodeUnprepareResources(t.Context(),
		&drav1.NodeUnprepareResourcesRequest{Claims: claims("good", "bad")}); err != nil {
		t.Fatal(err)
	}
	if held, unknown := Held(p.Calls()); len(held)+len(unknown) > 0 {
		t.Errorf("held is %v, unknown %v", held, unknown)
	}
}

// Trouble before a call keeps it from the driver, and after it its answer from the agent.
func TestTrouble(t *testing.T) {
	p, f, plugin, _, _ := proxied(t)
	broken := func(context.Context, Call) error { return status.Error(codes.Internal, "broken") }
	prepare := func() error {
		_, err := plugin.NodePrepareResources(t.Context(),
			&drav1.NodePrepareResourcesRequest{Claims: claims("u")})
		return err
	}
	p.Set(Trouble{Before: broken})
	if err := prepare(); status.Code(err) != codes.Internal || f.calls != 0 {
		t.Errorf("the error is %v after %d calls", err, f.calls)
	}
	p.Set(Trouble{After: broken})
	if err := prepare(); status.Code(err) != codes.Internal || f.calls != 1 {
		t.Errorf("the error is %v after %d calls", err, f.calls)
	}
	if _, unknown := Held(p.Calls()); len(unknown) != 1 {
		t.Errorf("unknown is %v", unknown)
	}
	p.Set(Trouble{})
	if err := prepare(); err != nil || f.calls != 2 {
		t.Errorf("the error is %v after %d calls", err, f.calls)
	}
	if held, unknown := Held(p.Calls()); len(held) != 1 || len(unknown) != 0 {
		t.Errorf("held is %v, unknown %v", held, unknown)
	}
}

// A driver that stops takes its sockets with it; one that is killed leaves them, and calls break.
func TestEnds(t *testing.T) {
	p, _, plugin, _, at := proxied(t)
	hangs := make(chan struct{})
	p.Set(Trouble{Before: func(ctx context.Context, _ Call) error {
		close(hangs)
		<-ctx.Done()
		return ctx.Err()
	}})
	failed := make(chan error, 1)
	go func() {
		_, err := plugin.NodePrepareResources(context.Background(),
			&drav1.NodePrepareResourcesRequest{Claims: claims("u")})
		failed <- err
	}()
	<-hangs
	if err := p.close(false); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("a call goes on without its driver")
	}
	if _, err := os.Stat(at.registerAt); err != nil {
		t.Error(err)
	}
	p.Set(Trouble{})
	if err := p.serve(at); err != nil {
		t.Fatal(err)
	}
	if err := p.close(true); err != nil {
		t.Fatal(err)
	}
	for _, socket := range []string{at.registerAt, at.serves} {
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left (%v)", socket, err)
		}
	}
	if _, unknown := Held(p.Calls()); unknown[types.UID("u")].UID != "u" {
		t.Errorf("unknown is %v", unknown)
	}
}

// A device is prepared twice if another claim gets it before the first is unprepared.
func TestTwice(t *testing.T) {
	for _, unprepared := range []bool{true, false} {
		p, _, plugin, _, _ := proxied(t)
		for _, uid := range []string{"a", "a", "b"} {
			if uid == "b" && unprepared {
				if _, err := plugin.NodeUnprepareResources(t.Context(),
					&drav1.NodeUnprepareResourcesRequest{Claims: claims("a")}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := plugin.NodePrepareResources(t.Context(),
				&drav1.NodePrepareResourcesRequest{Claims: claims(uid)}); err != nil {
				t.Fatal(err)
			}
		}
		got := strings.Join(Twice(p.Calls()), "; ")
		if (got == "") != unprepared || !unprepared && got != "pool/d for name-b while name-a has it" {
			t.Errorf("unprepared %v: %q", unprepared, got)
		}
	}
}
