package serve

import (
	"context"

	"google.golang.org/grpc"

	"github.com/numalet/numalet/deviceplugin/holder"
	"github.com/numalet/numalet/deviceplugin/lifecyclev1"
)

// Released handles a release: no pod holds these devices any more; by is the pod that held them. It is
// called at least once for each release, also for devices no longer listed. After an error it is
// called again.
type Released func(ctx context.Context, ids []string, by holder.Holder) error

// Texts returns a text for each device, by id; "": there is none. It must return at once.
type Texts func() map[string]string

// of returns the texts of these devices.
func (t Texts) of(ids []string) map[string]string {
	all, out := t(), map[string]string{}
	for _, id := range ids {
		if text := all[id]; text != "" {
			out[id] = text
		}
	}
	return out
}

// Lifecycle holds a plugin's part of lifecyclev1.Lifecycle; nil: not served.
type Lifecycle struct {
	Released Released
	// Reasons says, for people, why devices are unhealthy; Places has their PCI addresses.
	Reasons, Places Texts
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
	return &lifecyclev1.ReasonsResponse{Reasons: l.serves.Reasons.of(req.GetDeviceIds())}, nil
}

// Places implements lifecyclev1.LifecycleServer.
func (l lifecycle) Places(ctx context.Context, req *lifecyclev1.PlacesRequest) (
	*lifecyclev1.PlacesResponse, error) {
	if l.serves.Places == nil {
		return l.UnimplementedLifecycleServer.Places(ctx, req)
	}
	out := &lifecyclev1.PlacesResponse{Places: map[string]*lifecyclev1.Place{}}
	for id, address := range l.serves.Places.of(req.GetDeviceIds()) {
		out.Places[id] = &lifecyclev1.Place{PciAddress: address}
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
