package devicemanager

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Peers names each plugin's socket and way, its devices, and the outcome of its calls.
func TestPeers(t *testing.T) {
	r := newRig(t, Config{Before: Before{Resources: []string{nic}}})
	refuse := true
	plugin := &authored{lists: lists(2)}
	plugin.allocate = func() (*v1beta1.AllocateResponse, error) {
		if refuse {
			return nil, status.Error(codes.Internal, "no such\nluck")
		}
		return &v1beta1.AllocateResponse{
			ContainerResponses: []*v1beta1.ContainerAllocateResponse{{}},
		}, nil
	}
	r.joins("p.sock", plugin)
	r.untilConnected(gpu)
	_, _ = r.Allocate(t.Context(), gpu, []string{"gpu-0"}) // fails
	failing := r.Peers()[0].Failing()
	if len(failing) != 1 || !strings.HasPrefix(failing[0], "plugin on p.sock: Allocate: rpc error") ||
		!strings.Contains(failing[0], "no such luck; a plugin has to answer with one response") {
		t.Errorf("failing are %q", failing)
	}
	refuse = false
	if _, err := r.Allocate(t.Context(), gpu, []string{"gpu-0"}); err != nil {
		t.Fatal(err)
	}
	peers := r.Peers()
	if len(peers) != 2 {
		t.Fatalf("the plugins are %+v", peers)
	}
	p, gone := peers[0], peers[1]
	if failing := p.Failing(); len(failing) > 0 {
		t.Errorf("after a call that did not fail, failing are %q", failing)
	}
	if p.Resource != gpu || p.Endpoint != filepath.Join(r.dir, "p.sock") || p.Way != ByRegister ||
		p.Problem != "" || p.Devices != 2 || p.Healthy != 2 {
		t.Errorf("the plugin is %+v", p)
	}
	if p.Calls[rpcAllocate] != (Calls{All: 2, Failed: 1}) || p.Calls[rpcList] != (Calls{All: 1}) {
		t.Errorf("the calls are %+v", p.Calls)
	}
	if !strings.HasPrefix(p.LastError, "Allocate: ") || p.LastErrorAt == nil ||
		!strings.Contains(p.LastError, "no such luck") {
		t.Errorf("the last error is %q at %v", p.LastError, p.LastErrorAt)
	}
	if gone.Resource != nic || gone.Endpoint != "" || gone.Problem == "" ||
		gone.LastErrorAt != nil {
		t.Errorf("one from before is %+v", gone)
	}
}
