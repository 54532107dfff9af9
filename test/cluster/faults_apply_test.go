package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// apply makes the cluster have the desired objects, as far as that is possible now; it may be
// called again. It forgets removed ones once they are gone.
func (s *faulty) apply() error {
	var errs []error
	for _, name := range s.wants.names() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		o := s.wants.of[name]
		err := s.applyOne(ctx, o)
		cancel()
		if err == nil && o.gone {
			delete(s.wants.of, name)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (s *faulty) applyOne(ctx context.Context, o *desired) error {
	if o.kind == static {
		return s.applyStatic(o)
	}
	if o.gone {
		return s.removeOne(ctx, o)
	}
	t := s.wants.template(o, s.node.Name)
	switch o.kind {
	case deployment:
		return s.patch(ctx, o, &appsv1.Deployment{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
			ObjectMeta: metav1.ObjectMeta{Name: o.name},
			Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(int32(o.replicas)), Template: t,
				Selector:             metav1.SetAsLabelSelector(map[string]string{"want": o.name}),
				RevisionHistoryLimit: ptr.To[int32](1),
			},
		})
	case job:
		return s.patch(ctx, o, &batchv1.Job{
			TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
			ObjectMeta: metav1.ObjectMeta{Name: o.name},
			Spec:       batchv1.JobSpec{Template: t, BackoffLimit: ptr.To[int32](0)},
		})
	default:
		return s.applyBare(ctx, o, t)
	}
}

// patch creates or changes an object by server-side apply, which may be repeated.
func (s *faulty) patch(ctx context.Context, o *desired, object any) (err error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	how := metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true)}
	if o.kind == deployment {
		_, err = s.c.Client.AppsV1().Deployments(s.c.Namespace).Patch(ctx, o.name,
			types.ApplyPatchType, raw, how)
	} else {
		_, err = s.c.Client.BatchV1().Jobs(s.c.Namespace).Patch(ctx, o.name,
			types.ApplyPatchType, raw, how)
	}
	return err
}

// applyBare creates a pod once. It first deletes an earlier one of that name.
func (s *faulty) applyBare(ctx context.Context, o *desired, t v1.PodTemplateSpec) error {
	pods := s.c.Client.CoreV1().Pods(s.c.Namespace)
	t.Name = o.name
	there, err := pods.Get(ctx, o.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && o.uid != "":
		return fmt.Errorf("pod %s has gone, and nobody wanted that", o.uid)
	case apierrors.IsNotFound(err):
		there, err = pods.Create(ctx, &v1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec},
			metav1.CreateOptions{})
		if err != nil {
			return err
		}
	case err != nil:
		return err
	case there.Labels["generation"] != o.labels()["generation"]:
		o.uid = ""
		if err := s.removeOne(ctx, o); err != nil {
			return err
		}
		return s.applyBare(ctx, o, t)
	}
	o.uid = there.UID
	return nil
}

// removeOne deletes an object from the API server, and returns an error while it exists.
func (s *faulty) removeOne(ctx context.Context, o *desired) (err error) {
	how := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	remove := s.c.Client.CoreV1().Pods(s.c.Namespace).Delete
	switch {
	case o.kind == deployment:
		remove = s.c.Client.AppsV1().Deployments(s.c.Namespace).Delete
	case o.kind == job:
		remove = s.c.Client.BatchV1().Jobs(s.c.Namespace).Delete
	case o.force:
		how.GracePeriodSeconds = ptr.To[int64](0)
	}
	err = remove(ctx, o.name, how)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = errors.New("it is being deleted")
	}
	return err
}

// applyStatic writes or removes a manifest.
func (s *faulty) applyStatic(o *desired) error {
	file := filepath.Join(s.node.Manifests, o.name+".yaml")
	before, err := os.ReadFile(file)
	if o.gone {
		if os.IsNotExist(err) {
			return nil
		}
		return os.Remove(file)
	}
	t := s.wants.template(o, s.node.Name)
	t.Name, t.Namespace = o.name, s.c.Namespace
	raw, err := yaml.Marshal(v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: t.ObjectMeta, Spec: t.Spec,
	})
	if err == nil && string(raw) != string(before) {
		s.node.Pod(o.name, string(raw))
	}
	return err
}
