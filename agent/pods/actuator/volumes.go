package actuator

import (
	"context"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cri"
)

const (
	// volumesWait bounds the time in which volumes are made; then the pod tries again.
	volumesWait = 10 * time.Second
	// updateRetry is the time after which a failed update of a running pod's volumes is repeated.
	// An object that was missing wakes the pod when it appears.
	updateRetry = time.Minute
	// pollRetry is the period in which a pod checks whether its claims are bound and its
	// certificates issued: no event announces these.
	pollRetry = 2 * time.Second
)

// setUpVolumes makes the pod's volumes. Each failure becomes an event.
func (b build) setUpVolumes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, volumesWait)
	defer cancel()
	var err error
	if b.cfg.Objects != nil {
		err = b.cfg.Objects.Begin(b.pod)
	}
	if err == nil {
		err = b.cfg.Volumes.SetUp(ctx, b.pod)
	}
	if err == nil {
		b.volumeErrors.forget(b.pod.UID)
		return nil
	}
	b.say.volumes(b.volumeErrors.news(b.pod.UID, err))
	why := &cri.StartError{Reason: mountFailed, Message: err.Error(), Err: err}
	if volume.Polls(b.pod) {
		why.RetryAt = time.Now().Add(pollRetry)
	}
	return why
}

// completeVolumes makes the missing volumes of a pod that has a sandbox.
func (b build) completeVolumes(ctx context.Context) error {
	missing, err := b.cfg.Volumes.Incomplete(b.pod)
	switch {
	case err != nil:
		return cri.ConfigError(err)
	case missing:
		return b.setUpVolumes(ctx)
	default:
		return nil
	}
}

// updateVolumes updates the volumes of a running pod. A volume that cannot be updated keeps its
// content.
func (b build) updateVolumes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, volumesWait)
	defer cancel()
	err := b.cfg.Volumes.Update(ctx, b.pod)
	if err == nil {
		return nil
	}
	b.say.volumes(err)
	return &cri.StartError{
		Reason: mountFailed, Message: err.Error(), Err: err,
		RetryAt: time.Now().Add(updateRetry),
	}
}

// imageVolumes pulls the images of the image volumes that a container mounts, and returns the
// runtime's names of them by volume.
func (s start) imageVolumes(ctx context.Context, yield func()) (map[string]string, error) {
	var out map[string]string
	for _, v := range s.pod.Spec.Volumes {
		mounts := func(m v1.VolumeMount) bool { return m.Name == v.Name }
		if v.Image == nil || !slices.ContainsFunc(s.c.VolumeMounts, mounts) {
			continue
		}
		image, err := s.cfg.Images.Ensure(ctx, cri.ImageRequest{
			Pod: s.pod, Sandbox: s.sandbox, Handler: s.imageHandler, Secrets: s.pullSecrets(),
			Container: &v1.Container{
				Image: v.Image.Reference, ImagePullPolicy: v.Image.PullPolicy,
			},
			Pulls: yield,
			Report: func(eventType, reason, message string) {
				s.cfg.Tell.Event(s.pod, eventType, reason, message)
			},
		})
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]string{}
		}
		out[v.Name] = image.Ref
	}
	return out, nil
}

// pullSecrets returns a function that reads the pod's image pull secrets, nil if it has none.
func (b build) pullSecrets() func(context.Context) ([]*v1.Secret, []string) {
	if b.cfg.Objects == nil || len(b.pod.Spec.ImagePullSecrets) == 0 {
		return nil
	}
	return func(ctx context.Context) ([]*v1.Secret, []string) {
		return b.cfg.Objects.PullSecrets(ctx, b.pod)
	}
}
