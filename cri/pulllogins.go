package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// credentials holds a pod's logins for an image.
type credentials struct {
	logins  []Login
	missing []string // secrets that cannot be read
	err     error    // why other logins are missing
}

// credentials returns the logins of the pod, then those of the node. They match the image's full
// name: busybox:1 means docker.io/library/busybox and gets its logins.
func (m *Images) credentials(ctx context.Context, image string, r ImageRequest) (c credentials) {
	var secrets []*v1.Secret
	if r.Secrets != nil {
		secrets, c.missing = r.Secrets(ctx)
	}
	own, unread := secretLogins(secrets)
	repository := Repository(image)
	groups, err := m.cfg.Logins(ctx, r.Pod, repository)
	c.err = errors.Join(unread, err)
	c.logins = append(loginsFor(repository, own), loginsFor(repository, groups...)...)
	return c
}

// accessible reports whether the pod may use an image that the runtime has.
func (m *Images) accessible(ctx context.Context, image, id string, r ImageRequest) bool {
	return m.cfg.Records == nil || m.cfg.Records.Accessible(image, id, func() (held []Holder) {
		for _, l := range m.credentials(ctx, image, r).logins {
			held = append(held, l.Holder)
		}
		return held
	})
}

// pullWithLogins pulls with each of the image's logins in turn, or without one if there are none.
// took is the time of the pulls alone.
func (m *Images) pullWithLogins(
	ctx context.Context, spec *runtimeapi.ImageSpec, r ImageRequest,
) (ref string, took time.Duration, err error) {
	has := m.credentials(ctx, spec.Image, r)
	if len(has.logins) == 0 {
		has.logins = []Login{{}}
	}
	done, err := m.acquire(ctx, r)
	if err != nil {
		return "", 0, err
	}
	defer done()
	if m.cfg.Records != nil {
		if err := m.cfg.Records.Pulling(spec.Image); err != nil {
			return "", 0, fmt.Errorf("record that the image is pulled: %w", err)
		}
	}
	start := time.Now()
	ref, err = m.pullAs(ctx, spec, r, has.logins)
	if err == nil {
		return ref, time.Since(start), nil
	}
	if len(has.missing) > 0 {
		r.Report(v1.EventTypeWarning, "FailedToRetrieveImagePullSecret", fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may "+
				"not succeed.", strings.Join(has.missing, ", ")))
	}
	return "", time.Since(start), errors.Join(err, has.err)
}

// pullAs pulls with the first login that works, and records it.
func (m *Images) pullAs(ctx context.Context, spec *runtimeapi.ImageSpec, r ImageRequest,
	logins []Login) (string, error) {
	var errs []error
	for _, l := range logins {
		ref, err := m.service.PullImage(ctx, spec, l.Auth, r.Sandbox)
		if err == nil && ref == "" {
			err = errors.New("the runtime answered with an empty image reference")
		}
		if err == nil {
			if m.cfg.Records != nil {
				m.cfg.Records.Pulled(spec.Image, ref, l.Holder)
			}
			return ref, nil
		}
		errs = append(errs, err)
	}
	if m.cfg.Records != nil {
		m.cfg.Records.Failed(spec.Image)
	}
	return "", errors.Join(errs...)
}
