package check

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/deviceplugin/devicemanager"
	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
	"github.com/numalet/numalet/deviceplugin/socket"
)

// direct is the checks' own connection to a socket of the plugin. It shows whole answers, and makes
// calls that no device manager makes. Patience is the deadline of each call.
type direct struct {
	to       string
	patience time.Duration
	conn     *grpc.ClientConn
	err      error // why there is no connection
}

func dial(to string, patience time.Duration, rec *recorder) *direct {
	conn, err := socket.Client(to, grpc.WithStatsHandler(rec.handler(byCheck, to)))
	return &direct{to, patience, conn, err}
}

// hangUp ends the connection, if there is one.
func (d *direct) hangUp() {
	if d != nil && d.conn != nil {
		_ = d.conn.Close() // closing twice is the only possible error
	}
}

// ask calls a method of the plugin, with the deadline.
func ask[Q, A any](ctx context.Context, d *direct,
	method func(v1beta1.DevicePluginClient, context.Context, *Q, ...grpc.CallOption) (*A, error),
	question *Q, options ...grpc.CallOption) (*A, error) {
	return askService(ctx, d, v1beta1.NewDevicePluginClient, method, question, options...)
}

// askService calls a method of one of the plugin's services, with the deadline.
func askService[C, Q, A any](ctx context.Context, d *direct, client func(grpc.ClientConnInterface) C,
	method func(C, context.Context, *Q, ...grpc.CallOption) (*A, error), question *Q,
	options ...grpc.CallOption) (*A, error) {
	if d.err != nil {
		return nil, d.err
	}
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return method(client(d.conn), ctx, question, options...)
}

// options calls GetDevicePluginOptions.
func (d *direct) options(ctx context.Context) (*v1beta1.DevicePluginOptions, error) {
	return ask(ctx, d, v1beta1.DevicePluginClient.GetDevicePluginOptions, &v1beta1.Empty{})
}

// allocate calls Allocate for containers with these ids.
func (d *direct) allocate(ctx context.Context, containers ...[]string) (
	*v1beta1.AllocateResponse, error) {
	req := &v1beta1.AllocateRequest{}
	for _, ids := range containers {
		req.ContainerRequests = append(req.ContainerRequests,
			&v1beta1.ContainerAllocateRequest{DevicesIds: ids})
	}
	return ask(ctx, d, v1beta1.DevicePluginClient.Allocate, req, grpc.WaitForReady(true))
}

// prefer calls GetPreferredAllocation.
func (d *direct) prefer(ctx context.Context, r devicemanager.PreferredRequest) ([]string, error) {
	resp, err := ask(ctx, d, v1beta1.DevicePluginClient.GetPreferredAllocation,
		&v1beta1.PreferredAllocationRequest{
			ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
				AvailableDeviceIDs: r.Available, MustIncludeDeviceIDs: r.MustInclude,
				AllocationSize: int32(r.Size),
			}},
		})
	if err != nil {
		return nil, err
	}
	if n := len(resp.GetContainerResponses()); n != 1 {
		return nil, fmt.Errorf("it answered for %d containers where it was asked about one", n)
	}
	return resp.GetContainerResponses()[0].GetDeviceIDs(), nil
}

// release tells the plugin that a pod with these devices is gone.
func (d *direct) release(ctx context.Context, ids ...string) error {
	_, err := askService(ctx, d, lifecyclev1.NewLifecycleClient, lifecyclev1.LifecycleClient.Released,
		&lifecyclev1.ReleasedRequest{DeviceIds: ids, Pod: &lifecyclev1.Pod{
			Namespace: "default", Name: "numalet-plugin-check", Uid: "numalet-plugin-check",
		}}, grpc.WaitForReady(true))
	return err
}
