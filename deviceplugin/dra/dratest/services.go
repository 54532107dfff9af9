package dratest

import (
	"context"
	"time"

	"google.golang.org/grpc/stats"
	"k8s.io/apimachinery/pkg/types"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/numalet/numalet/deviceplugin/dra"
)

// services has the driver's gRPC services.
type services struct {
	drav1.UnimplementedDRAPluginServer
	healthv1.UnimplementedDRAResourceHealthServer
	driver *Driver
}

func (s services) NodePrepareResources(ctx context.Context,
	req *drav1.NodePrepareResourcesRequest) (*drav1.NodePrepareResourcesResponse, error) {
	d := s.driver
	resp := &drav1.NodePrepareResourcesResponse{
		Claims: map[string]*drav1.NodePrepareResourceResponse{},
	}
	err := d.handle(ctx, Prepare, req.GetClaims(), func(c dra.Claim) {
		answer := d.cfg.Prepare(ctx, c)
		resp.Claims[string(c.UID)] = encoded(answer)
		if answer.Err == nil {
			d.note(func() { d.prepared[c.UID] = c })
		}
	})
	if err == nil && d.cfg.Edit != nil {
		d.cfg.Edit(resp)
	}
	return resp, err
}

func (s services) NodeUnprepareResources(ctx context.Context,
	req *drav1.NodeUnprepareResourcesRequest) (*drav1.NodeUnprepareResourcesResponse, error) {
	d := s.driver
	resp := &drav1.NodeUnprepareResourcesResponse{
		Claims: map[string]*drav1.NodeUnprepareResourceResponse{},
	}
	return resp, d.handle(ctx, Unprepare, req.GetClaims(), func(c dra.Claim) {
		answer := &drav1.NodeUnprepareResourceResponse{}
		if err := d.cfg.Unprepare(ctx, c); err != nil {
			answer.Error = err.Error()
		} else {
			d.note(func() { delete(d.prepared, c.UID) })
		}
		resp.Claims[string(c.UID)] = answer
	})
}

// handle records a call, and does its work for each claim or what its fault says.
func (d *Driver) handle(ctx context.Context, rpc string, of []*drav1.Claim,
	do func(dra.Claim)) error {
	claims, at := claimsOf(of), 0
	d.note(func() {
		at = len(d.calls)
		d.calls = append(d.calls, Call{RPC: rpc, Claims: claims, Began: time.Now()})
	})
	err := d.Take(rpc).Suffer(ctx)
	if err == nil {
		for _, c := range claims {
			do(c)
		}
	}
	d.note(func() { d.calls[at].Ended, d.calls[at].Err = time.Now(), err })
	return err
}

func (s services) NodeWatchResources(_ *healthv1.NodeWatchResourcesRequest,
	stream healthv1.DRAResourceHealth_NodeWatchResourcesServer) error {
	d := s.driver
	var quit <-chan struct{}
	d.note(func() { d.health.streams, quit = d.health.streams+1, d.quit })
	defer d.note(func() { d.health.streams-- })
	for {
		var said *healthv1.NodeWatchResourcesResponse
		var news <-chan struct{}
		d.note(func() { said, news = d.health.last, d.health.news })
		if said != nil && !d.cfg.Silent {
			if err := stream.Send(said); err != nil {
				return err
			}
		}
		select {
		case <-news:
		case err := <-d.health.endWith:
			return err
		case <-quit:
			return nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

func (d *Driver) note(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func claimsOf(claims []*drav1.Claim) (out []dra.Claim) {
	for _, c := range claims {
		out = append(out, dra.Claim{
			Namespace: c.GetNamespace(), Name: c.GetName(), UID: types.UID(c.GetUid()),
		})
	}
	return out
}

func encoded(a dra.Answer) *drav1.NodePrepareResourceResponse {
	if a.Err != nil {
		return &drav1.NodePrepareResourceResponse{Error: a.Err.Error()}
	}
	out := &drav1.NodePrepareResourceResponse{}
	for _, d := range a.Devices {
		one := &drav1.Device{
			RequestNames: d.Requests, PoolName: d.Pool, DeviceName: d.Name, CdiDeviceIds: d.CDI,
		}
		if d.ShareID != "" {
			one.ShareId = &d.ShareID
		}
		out.Devices = append(out.Devices, one)
	}
	return out
}

// connection is the key in a call's context of a pointer that is its connection's alone.
type connection struct{}

// SameConnection reports whether two calls, by their contexts, came on one connection.
func SameConnection(one, other context.Context) bool {
	return one.Value(connection{}) == other.Value(connection{})
}

// connections marks the calls of each connection.
type connections struct{}

// TagRPC implements stats.Handler.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (connections) HandleRPC(context.Context, stats.RPCStats) {}

// TagConn implements stats.Handler.
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connection{}, new(byte))
}

// HandleConn implements stats.Handler.
func (connections) HandleConn(context.Context, stats.ConnStats) {}
