package objects

import (
	"context"
	"errors"
	"iter"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// references yields the config maps and secrets that the pod's volumes and containers name, some
// more than once.
func references(pod *v1.Pod) iter.Seq[key] {
	return func(yield func(key) bool) {
		for _, v := range pod.Spec.Volumes {
			for k := range volumeReferences(pod.Namespace, v.VolumeSource) {
				if !yield(k) {
					return
				}
			}
		}
		for c := range podspec.All(pod) {
			for k := range envReferences(pod.Namespace, c) {
				if !yield(k) {
					return
				}
			}
		}
	}
}

func volumeReferences(namespace string, v v1.VolumeSource) iter.Seq[key] {
	return func(yield func(key) bool) {
		switch {
		case v.ConfigMap != nil:
			yield(key{configMaps, namespace, v.ConfigMap.Name})
		case v.Secret != nil:
			yield(key{secrets, namespace, v.Secret.SecretName})
		case v.Projected != nil:
			for _, source := range v.Projected.Sources {
				switch {
				case source.ConfigMap != nil &&
					!yield(key{configMaps, namespace, source.ConfigMap.Name}),
					source.Secret != nil && !yield(key{secrets, namespace, source.Secret.Name}):
					return
				}
			}
		}
	}
}

func envReferences(namespace string, c *v1.Container) iter.Seq[key] {
	return func(yield func(key) bool) {
		for _, from := range c.EnvFrom {
			switch {
			case from.ConfigMapRef != nil &&
				!yield(key{configMaps, namespace, from.ConfigMapRef.Name}),
				from.SecretRef != nil && !yield(key{secrets, namespace, from.SecretRef.Name}):
				return
			}
		}
		for _, env := range c.Env {
			from := env.ValueFrom
			switch {
			case from == nil:
			case from.ConfigMapKeyRef != nil &&
				!yield(key{configMaps, namespace, from.ConfigMapKeyRef.Name}),
				from.SecretKeyRef != nil && !yield(key{secrets, namespace, from.SecretKeyRef.Name}):
				return
			}
		}
	}
}

// Environment returns the objects in the container's environment, without those that do not exist.
func (o *Objects) Environment(
	ctx context.Context, pod *v1.Pod, c *v1.Container,
) (*cri.Objects, error) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	out := &cri.Objects{
		ConfigMaps: map[string]*v1.ConfigMap{}, Secrets: map[string]*v1.Secret{},
	}
	var err error
	if out.Services, err = o.services.forPod(ctx, pod); err != nil {
		return nil, err
	}
	for k := range envReferences(pod.Namespace, c) {
		var err error
		if k.kind == configMaps {
			err = keep(out.ConfigMaps, k.name, func() (*v1.ConfigMap, error) {
				return o.ConfigMap(ctx, pod, k.name)
			})
		} else {
			err = keep(out.Secrets, k.name, func() (*v1.Secret, error) {
				return o.Secret(ctx, pod, k.name)
			})
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keep gets an object once, if it exists.
func keep[T any](into map[string]T, name string, get func() (T, error)) error {
	if _, has := into[name]; has {
		return nil
	}
	found, err := get()
	switch {
	case err == nil:
		into[name] = found
	case !apierrors.IsNotFound(errors.Unwrap(err)):
		return err
	}
	return nil
}

// PullSecrets returns the pod's image pull secrets, and the names of those that cannot be had.
func (o *Objects) PullSecrets(ctx context.Context, pod *v1.Pod) (
	found []*v1.Secret, missing []string) {
	ctx, cancel := context.WithTimeout(ctx, o.cfg.Wait)
	defer cancel()
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := o.Secret(ctx, pod, ref.Name)
		if err != nil {
			missing = append(missing, ref.Name)
			continue
		}
		found = append(found, s)
	}
	return found, missing
}
