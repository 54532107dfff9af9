package gc

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/numalet/numalet/agent/logs"
	"github.com/numalet/numalet/cri"
)

// Records are the runtime's records of containers that do not run, with what these logged.
type Records struct {
	Runtime interface {
		RemoveContainer(ctx context.Context, id string) error
	}
	Logs logs.Place
	// KeepLogs: what they logged stays.
	KeepLogs bool
}

// Remove removes one of a pod's, which may be gone already.
func (r Records) Remove(ctx context.Context, pod cri.Pod, id string) error {
	err := r.Runtime.RemoveContainer(ctx, id)
	if err != nil && status.Code(err) != codes.NotFound {
		return err
	}
	for _, c := range pod.Containers {
		switch {
		case c.ID == id && r.KeepLogs:
			return r.Logs.Keep(pod, c)
		case c.ID == id:
			return r.Logs.Remove(pod, c)
		}
	}
	return nil
}
