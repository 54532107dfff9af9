package objects

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/kubeapi/requests"
	"github.com/numalet/numalet/internal/await"
)

// Claim reads a persistent volume claim. It is read each time: the Node authorizer lets a node get
// the claims of its pods, and watch none.
func (o *Objects) Claim(
	ctx context.Context, namespace, name string,
) (*v1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	return insist(ctx, apierrors.IsForbidden, func() (*v1.PersistentVolumeClaim, error) {
		return o.cfg.Client.CoreV1().PersistentVolumeClaims(namespace).
			Get(ctx, name, metav1.GetOptions{})
	})
}

// PersistentVolume reads a persistent volume, each time.
func (o *Objects) PersistentVolume(
	ctx context.Context, name string,
) (*v1.PersistentVolume, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	return insist(ctx, apierrors.IsForbidden, func() (*v1.PersistentVolume, error) {
		return o.cfg.Client.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	})
}

// insist repeats a request until the API server must have heard of the pod in question; early
// reports whether an error may mean that it has not.
func insist[T any](ctx context.Context, early func(error) bool, ask func() (T, error)) (T, error) {
	heard := time.After(authorizerLag)
	pauses := await.Pauses{First: firstInsist, Last: lastInsist}
	for tries := 0; ; tries++ {
		got, err := ask()
		if !early(err) {
			return got, requests.Short(err)
		}
		select {
		case <-ctx.Done():
			return got, requests.Short(err)
		case <-heard:
			return got, requests.Short(err)
		case <-time.After(pauses.After(tries)):
		}
	}
}
