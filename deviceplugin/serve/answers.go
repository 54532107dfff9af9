package serve

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/internal/await"
)

// answers serves v1beta1.DevicePlugin of a Plugin.
type answers struct {
	v1beta1.UnimplementedDevicePluginServer
	plugin *Plugin
}

// GetDevicePluginOptions implements v1beta1.DevicePluginServer.
func (a *answers) GetDevicePluginOptions(
	context.Context, *v1beta1.Empty,
) (*v1beta1.DevicePluginOptions, error) {
	return a.plugin.options(), nil
}

// ListAndWatch implements v1beta1.DevicePluginServer. It sends the list at once and after each
// change.
func (a *answers) ListAndWatch(
	_ *v1beta1.Empty, stream grpc.ServerStreamingServer[v1beta1.ListAndWatchResponse],
) error {
	for {
		devices, changed := a.plugin.current()
		err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: devices})
		if err != nil {
			return err
		}
		if !await.On(stream.Context(), changed) {
			return nil
		}
	}
}

// GetPreferredAllocation implements v1beta1.DevicePluginServer.
func (a *answers) GetPreferredAllocation(
	ctx context.Context, req *v1beta1.PreferredAllocationRequest,
) (*v1beta1.PreferredAllocationResponse, error) {
	if a.plugin.cfg.Prefer == nil {
		return a.UnimplementedDevicePluginServer.GetPreferredAllocation(ctx, req)
	}
	resp := &v1beta1.PreferredAllocationResponse{}
	for _, r := range req.GetContainerRequests() {
		ids, err := a.plugin.cfg.Prefer(r.GetAvailableDeviceIDs(), r.GetMustIncludeDeviceIDs(),
			int(r.GetAllocationSize()))
		if err != nil {
			return nil, err
		}
		resp.ContainerResponses = append(resp.ContainerResponses,
			&v1beta1.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return resp, nil
}

// Allocate implements v1beta1.DevicePluginServer.
func (a *answers) Allocate(
	ctx context.Context, req *v1beta1.AllocateRequest,
) (*v1beta1.AllocateResponse, error) {
	resp := &v1beta1.AllocateResponse{}
	for _, container := range req.GetContainerRequests() {
		ids := container.GetDevicesIds()
		if err := a.known(ids); err != nil {
			return nil, err
		}
		answer, err := a.plugin.cfg.Allocate(ctx, ids)
		if err != nil {
			return nil, a.failed("allocate", ids, err)
		}
		resp.ContainerResponses = append(resp.ContainerResponses, answer)
	}
	return resp, nil
}

// PreStartContainer implements v1beta1.DevicePluginServer.
func (a *answers) PreStartContainer(
	ctx context.Context, req *v1beta1.PreStartContainerRequest,
) (*v1beta1.PreStartContainerResponse, error) {
	ids := req.GetDevicesIds()
	if err := a.known(ids); err != nil {
		return nil, err
	}
	if prepare := a.plugin.cfg.Prepare; prepare != nil {
		if err := prepare(ctx, ids); err != nil {
			return nil, a.failed("prepare", ids, err)
		}
	}
	return &v1beta1.PreStartContainerResponse{}, nil
}

// failed logs an error of the plugin and returns it for the agent: a status as it is, any other
// error as FailedPrecondition.
func (a *answers) failed(what string, ids []string, err error) error {
	a.plugin.cfg.Log("%s: %s %v: %v", a.plugin.cfg.Resource, what, ids, err)
	if _, is := status.FromError(err); is {
		return err
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}

// known returns an error for a device that is not listed.
func (a *answers) known(ids []string) error {
	for _, id := range ids {
		if !a.plugin.has(id) {
			return status.Errorf(codes.NotFound, "there is no device %q", id)
		}
	}
	return nil
}
