package serve

import (
	"context"

	"google.golang.org/grpc"

	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
)

// Released handles that nobody holds these devices any more; by is the pod that held them. It is
// called at least once for each release, also for devices no longer listed. After an error it is
// called again.
type Released func(ctx context.Context, ids []string, by holder.Holder) error

// Reasons says, for people, why devices are unhealthy: one line each, by id, without those that it
// does not know. It must return at once.
type Reasons func(ids []string) map[string]string

// Places returns the PCI addresses of devices, by id, without those that have none. It must return at
// once.
type Places func(ids []string) map[string]string

// Lifecycle holds a plugin's part of lifecyclev1.Lifecycle; nil: not served.
type Lifecycle struct {
	Released Released
	Reasons  Reasons
	Places   Places
}

// Register registers the service beside a plugin's v1beta1.
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

// Places implements lifecyclev1.LifecycleServer.
func (l lifecycle) Places(ctx context.Context, req *lifecyclev1.PlacesRequest) (
	*lifecyclev1.PlacesResponse, error) {
	if l.serves.Places == nil {
		return l.UnimplementedLifecycleServer.Places(ctx, req)
	}
	out := &lifecyclev1.PlacesResponse{Places: map[string]*lifecyclev1.Place{}}
	if len(req.GetDeviceIds()) > 0 {
		for id, address := range l.serves.Places(req.GetDeviceIds()) {
			out.Places[id] = &lifecyclev1.Place{PciAddress: address}
		}
	}
	return out, nil
}

// Released implements lifecyclev1.LifecycleServer. A request without devices asks whether the
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
