package objects

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/internal/await"
)

// PVC reads a PersistentVolumeClaim. It is read each time: the Node authorizer lets a node get
// the PVCs of its pods, and watch none.
func (o *Objects) PVC(
	ctx context.Context, namespace, name string,
) (*v1.PersistentVolumeClaim, error) {
	return read(ctx, o.cfg, o.cfg.Client.CoreV1().PersistentVolumeClaims(namespace), name)
}

// PersistentVolume reads a persistent volume, each time.
func (o *Objects) PersistentVolume(
	ctx context.Context, name string,
) (*v1.PersistentVolume, error) {
	return read(ctx, o.cfg, o.cfg.Client.CoreV1().PersistentVolumes(), name)
}

// UpdatePVC writes the status of a PVC that was read, unless the PVC has changed since.
func (o *Objects) UpdatePVC(ctx context.Context, was, is *v1.PersistentVolumeClaim) (
	*v1.PersistentVolumeClaim, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	patch, err := requests.StrategicPatch(v1.PersistentVolumeClaim{Status: was.Status},
		v1.PersistentVolumeClaim{Status: is.Status,
			ObjectMeta: metav1.ObjectMeta{UID: was.UID, ResourceVersion: was.ResourceVersion}})
	if err != nil {
		return nil, err
	}
	out, err := o.cfg.Client.CoreV1().PersistentVolumeClaims(was.Namespace).Patch(ctx, was.Name,
		types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return out, requests.Short(err)
}

// read gets an object that a pod of the node has to do with.
func read[T any](ctx context.Context, cfg Config, of interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (T, error)
}, name string) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.Wait)
	defer cancel()
	return insist(ctx, apierrors.IsForbidden, func() (T, error) {
		return of.Get(ctx, name, metav1.GetOptions{})
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
