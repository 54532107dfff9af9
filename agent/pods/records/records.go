// Package records removes what the runtime and the disk keep of containers that have exited.
package records

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
)

// Records removes exited containers from the runtime, with their logs.
type Records struct {
	Runtime interface {
		RemoveContainer(ctx context.Context, id string) error
	}
	Logs logfiles.Place
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
