package gc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/agent/upkeep/logs"
	"github.com/numalet/numalet/cri"
)

// Records removes exited containers from the runtime, with their logs.
type Records struct {
	Runtime interface {
		RemoveContainer(ctx context.Context, id string) error
	}
	Logs logs.Place
	// KeepLogs keeps their logs.
	KeepLogs bool
}

// Remove removes a pod's container, which may already be gone.
func (r Records) Remove(ctx context.Context, pod cri.Pod, id string) error {
	err := r.Runtime.RemoveContainer(ctx, id)
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	c, known := pod.ContainerOf(id)
	switch {
	case !known:
		return nil
	case r.KeepLogs:
		return r.Logs.Keep(pod, c)
	}
	return r.Logs.Remove(pod, c)
}
