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

// call runs f, which calls the plugin, with the deadline.
func (d *direct) call(ctx context.Context,
	f func(context.Context, v1beta1.DevicePluginClient) error) error {
	if d.err != nil {
		return d.err
	}
	ctx, cancel := context.WithTimeout(ctx, d.patience)
	defer cancel()
	return f(ctx, v1beta1.NewDevicePluginClient(d.conn))
}

// options calls GetDevicePluginOptions.
func (d *direct) options(ctx context.Context) (o *v1beta1.DevicePluginOptions, err error) {
	err = d.call(ctx, func(ctx context.Context, c v1beta1.DevicePluginClient) (err error) {
		o, err = c.GetDevicePluginOptions(ctx, &v1beta1.Empty{})
		return err
	})
	return o, err
}

// allocate calls Allocate for containers with these ids.
func (d *direct) allocate(ctx context.Context, containers ...[]string) (
	resp *v1beta1.AllocateResponse, err error) {
	req := &v1beta1.AllocateRequest{}
	for _, ids := range containers {
		req.ContainerRequests = append(req.ContainerRequests,
			&v1beta1.ContainerAllocateRequest{DevicesIds: ids})
	}
	err = d.call(ctx, func(ctx context.Context, c v1beta1.DevicePluginClient) (err error) {
		resp, err = c.Allocate(ctx, req, grpc.WaitForReady(true))
		return err
	})
	return resp, err
}

// prefer calls GetPreferredAllocation.
func (d *direct) prefer(ctx context.Context, r devicemanager.PreferredRequest) (
	ids []string, err error) {
	err = d.call(ctx, func(ctx context.Context, c v1beta1.DevicePluginClient) error {
		resp, err := c.GetPreferredAllocation(ctx, &v1beta1.PreferredAllocationRequest{
			ContainerRequests: []*v1beta1.ContainerPreferredAllocationRequest{{
				AvailableDeviceIDs: r.Available, MustIncludeDeviceIDs: r.MustInclude,
				AllocationSize: int32(r.Size),
			}},
		})
		if err != nil {
			return err
		}
		if n := len(resp.GetContainerResponses()); n != 1 {
			return fmt.Errorf("it answered for %d containers where it was asked about one", n)
		}
		ids = resp.GetContainerResponses()[0].GetDeviceIDs()
		return nil
	})
	return ids, err
}

// release tells the plugin that a pod with these devices is gone.
func (d *direct) release(ctx context.Context, ids ...string) error {
	return d.call(ctx, func(ctx context.Context, _ v1beta1.DevicePluginClient) error {
		_, err := lifecyclev1.NewLifecycleClient(d.conn).Released(ctx, &lifecyclev1.ReleasedRequest{
			DeviceIds: ids, Pod: &lifecyclev1.Pod{
				Namespace: "default", Name: "numalet-plugin-check", Uid: "numalet-plugin-check",
			},
		}, grpc.WaitForReady(true))
		return err
	})
}
