package serve

import (
	"context"

	"google.golang.org/grpc"

	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
)

// Released takes that nobody has these devices any more, and which pod had them. It is called at
// least once for each release, also of devices that are listed no more. An error is tried again.
type Released func(ctx context.Context, ids []string, by holder.Holder) error

// RegisterLifecycle serves lifecyclev1.Lifecycle beside a plugin's v1beta1.
func RegisterLifecycle(s grpc.ServiceRegistrar, f Released) {
	lifecyclev1.RegisterLifecycleServer(s, lifecycle{released: f})
}

type lifecycle struct {
	lifecyclev1.UnimplementedLifecycleServer
	released Released
}

// Released implements lifecyclev1.LifecycleServer. Without devices it is the question whether the
// plugin serves it.
func (l lifecycle) Released(
	ctx context.Context, req *lifecyclev1.ReleasedRequest,
) (*lifecyclev1.ReleasedResponse, error) {
	if len(req.GetDeviceIds()) > 0 {
		pod := req.GetPod()
		by := holder.Holder{Namespace: pod.GetNamespace(), Pod: pod.GetName(), UID: pod.GetUid()}
		if err := l.released(ctx, req.GetDeviceIds(), by); err != nil {
			return nil, err
		}
	}
	return &lifecyclev1.ReleasedResponse{}, nil
}
