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

// Reasons says, for people, why devices are unhealthy, a line each by id. What it does not know is
// left out. It has to answer at once.
type Reasons func(ids []string) map[string]string

// Lifecycle is what a plugin serves of lifecyclev1.Lifecycle; nil: not that.
type Lifecycle struct {
	Released Released
	Reasons  Reasons
}

// Register serves it beside a plugin's v1beta1.
func (l Lifecycle) Register(s grpc.ServiceRegistrar) {
	lifecyclev1.RegisterLifecycleServer(s, lifecycle{serves: l})
}

type lifecycle struct {
	lifecyclev1.UnimplementedLifecycleServer
	serves Lifecycle
}

// Reasons implements lifecyclev1.LifecycleServer.
func (l lifecycle) Reasons(ctx context.Context, req *lifecyclev1.ReasonsRequest) (
	*lifecyclev1.ReasonsResponse, error) {
	if l.serves.Reasons == nil {
		return l.UnimplementedLifecycleServer.Reasons(ctx, req)
	}
	return &lifecyclev1.ReasonsResponse{Reasons: l.serves.Reasons(req.GetDeviceIds())}, nil
}

// Released implements lifecyclev1.LifecycleServer. Without devices it is the question whether the
// plugin serves it.
func (l lifecycle) Released(
	ctx context.Context, req *lifecyclev1.ReleasedRequest,
) (*lifecyclev1.ReleasedResponse, error) {
	if l.serves.Released == nil {
		return l.UnimplementedLifecycleServer.Released(ctx, req)
	}
	if len(req.GetDeviceIds()) > 0 {
		pod := req.GetPod()
		by := holder.Holder{Namespace: pod.GetNamespace(), Pod: pod.GetName(), UID: pod.GetUid()}
		if err := l.serves.Released(ctx, req.GetDeviceIds(), by); err != nil {
			return nil, err
		}
	}
	return &lifecyclev1.ReleasedResponse{}, nil
}
