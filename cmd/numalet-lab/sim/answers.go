package sim

import (
	"context"
	"slices"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/deviceplugin/serve"
	"github.com/numalet/numalet/internal/await"
)

// answers serves v1beta1.DevicePlugin for one session.
type answers struct {
	v1beta1.UnimplementedDevicePluginServer
	plugin *Plugin
}

func (a answers) GetDevicePluginOptions(
	ctx context.Context, _ *v1beta1.Empty,
) (*v1beta1.DevicePluginOptions, error) {
	if _, err := a.plugin.state.called(ctx, Options); err != nil {
		return nil, err
	}
	return a.plugin.options(), nil
}

// ListAndWatch sends the list at once and after each change. A fault set while the stream is open
// applies to it too.
func (a answers) ListAndWatch(
	_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse],
) error {
	sent, misbehave := 0, a.plugin.state.called // only the first one is a call
	for {
		// Read before the fault: a change in between wakes the loop once more.
		devices, version, changed := a.plugin.state.list()
		lie, err := misbehave(stream.Context(), List)
		misbehave = a.plugin.state.misbehave
		if err != nil {
			return err
		}
		if version != sent || lie != "" {
			if err := stream.Send(listing(devices, lie)); err != nil {
				return err
			}
			sent = version
		}
		if !await.On(stream.Context(), changed) {
			return nil
		}
	}
}

func listing(devices []Device, lie Lie) *v1beta1.ListAndWatchResponse {
	resp := &v1beta1.ListAndWatchResponse{}
	if lie == Empty {
		return resp
	}
	for _, d := range devices {
		nodes := d.Nodes
		if lie == Nowhere {
			nodes = append(slices.Clone(nodes), 4095)
		}
		resp.Devices = append(resp.Devices, serve.Device(d.ID, d.Healthy, nodes...))
	}
	if lie == Duplicate {
		resp.Devices = append(resp.Devices, resp.Devices...)
	}
	return resp
}

func (a answers) GetPreferredAllocation(
	ctx context.Context, req *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	lie, err := a.plugin.state.called(ctx, Preferred)
	if err != nil {
		return nil, err
	}
	resp := &v1beta1.PreferredAllocationResponse{}
	if lie == Empty {
		return resp, nil
	}
	for _, r := range req.GetContainerRequests() {
		available, err := a.plugin.find(r.GetAvailableDeviceIDs())
		if err != nil {
			return nil, err
		}
		must, err := a.plugin.find(r.GetMustIncludeDeviceIDs())
		if err != nil {
			return nil, err
		}
		ids := prefer(available, must, int(r.GetAllocationSize()))
		if lie == Broken && len(ids) > 0 {
			ids[0] = a.plugin.broken()
		}
		a.plugin.log.Printf("of %d devices it prefers %s", len(available), strings.Join(ids, ","))
		resp.ContainerResponses = append(resp.ContainerResponses,
			&v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: lieAbout(ids, lie)})
	}
	return resp, nil
}

func lieAbout(ids []string, lie Lie) []string {
	switch {
	case lie == Foreign:
		for i := range ids {
			ids[i] = "foreign-" + ids[i]
		}
	case lie == Few && len(ids) > 0:
		ids = ids[:len(ids)-1]
	}
	return ids
}

func (a answers) Allocate(
	ctx context.Context, req *v1beta1.AllocateRequest,
) (*v1beta1.AllocateResponse, error) {
	lie, err := a.plugin.state.called(ctx, Allocate)
	if err != nil {
		return nil, err
	}
	resp := &v1beta1.AllocateResponse{}
	if lie == Empty {
		return resp, nil
	}
	for _, r := range req.GetContainerRequests() {
		devices, err := a.plugin.find(r.GetDevicesIds())
		if err != nil {
			return nil, err
		}
		for _, d := range devices {
			if !d.Healthy {
				return nil, status.Errorf(codes.FailedPrecondition, "device %s is unhealthy", d.ID)
			}
		}
		answer, err := a.plugin.cfg.Answer.response(a.plugin.cfg.Resource, r.GetDevicesIds())
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		a.plugin.state.give(ctx, r.GetDevicesIds(), func(g *Given, to holder.Holder) {
			g.Allocated = to
		})
		a.plugin.log.Printf("allocated %s", strings.Join(r.GetDevicesIds(), ","))
		resp.ContainerResponses = append(resp.ContainerResponses, answer)
	}
	return resp, nil
}

func (a answers) PreStartContainer(
	ctx context.Context, req *v1beta1.PreStartContainerRequest,
) (*v1beta1.PreStartContainerResponse, error) {
	if _, err := a.plugin.state.called(ctx, PreStart); err != nil {
		return nil, err
	}
	if _, err := a.plugin.find(req.GetDevicesIds()); err != nil {
		return nil, err
	}
	a.plugin.state.give(ctx, req.GetDevicesIds(), func(g *Given, to holder.Holder) {
		g.Prepared = to
	})
	a.plugin.log.Printf("made %s ready", strings.Join(req.GetDevicesIds(), ","))
	return &v1beta1.PreStartContainerResponse{}, nil
}

// released records that no pod holds the devices any more. It accepts devices that are no longer
// listed.
func (a answers) released(ctx context.Context, ids []string, by holder.Holder) error {
	if _, err := a.plugin.state.called(ctx, Released); err != nil {
		return err
	}
	a.plugin.state.addRelease(Release{IDs: ids, By: by})
	a.plugin.log.Printf("%s of pod %s/%s released", strings.Join(ids, ","), by.Namespace, by.Pod)
	return nil
}

// broken returns the id of an unhealthy device, "" if there is none.
func (p *Plugin) broken() string {
	all, _, _ := p.state.list()
	for _, d := range all {
		if !d.Healthy {
			return d.ID
		}
	}
	return ""
}

// find looks up devices by id.
func (p *Plugin) find(ids []string) ([]Device, error) {
	all, _, _ := p.state.list()
	byID := make(map[string]Device, len(all))
	for _, d := range all {
		byID[d.ID] = d
	}
	out := make([]Device, 0, len(ids))
	for _, id := range ids {
		d, known := byID[id]
		if !known {
			return nil, status.Errorf(codes.NotFound, "there is no device %q", id)
		}
		out = append(out, d)
	}
	return out, nil
}
