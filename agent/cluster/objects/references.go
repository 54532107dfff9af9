package objects

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// reference is a config map or secret that a volume, or a container's environment, names.
type reference struct {
	key
	optional bool
	// check reports what the object lacks, in the kubelet's words.
	check func(object) error
}

// references returns those of the pod's volumes and containers, some more than once.
func references(pod *v1.Pod) (out []reference) {
	for _, v := range pod.Spec.Volumes {
		out = append(out, volumeReferences(pod, v.VolumeSource)...)
	}
	for c := range podspec.All(pod) {
		out = append(out, envReferences(pod, c)...)
	}
	return out
}

func volumeReferences(pod *v1.Pod, v v1.VolumeSource) (out []reference) {
	add := func(kind kind, name string, items []v1.KeyToPath, optional *bool) {
		lacking := "references non-existent secret key"
		if kind == configMaps {
			lacking = "configmap references non-existent config key"
		}
		check := func(o object) error {
			for _, item := range items {
				if !hasKey(o, item.Key) {
					return fmt.Errorf("%s: %s", lacking, item.Key)
				}
			}
			return nil
		}
		out = append(out, reference{key{kind, pod.Namespace, name}, ptr.Deref(optional, false), check})
	}
	switch {
	case v.ConfigMap != nil:
		add(configMaps, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		add(secrets, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if m := source.ConfigMap; m != nil {
				add(configMaps, m.Name, m.Items, m.Optional)
			}
			if s := source.Secret; s != nil {
				add(secrets, s.Name, s.Items, s.Optional)
			}
		}
	}
	return out
}

func envReferences(pod *v1.Pod, c *v1.Container) (out []reference) {
	add := func(kind kind, name string, optional *bool, check func(object) error) {
		out = append(out, reference{key{kind, pod.Namespace, name}, ptr.Deref(optional, false), check})
	}
	whole := func(object) error { return nil }
	for _, from := range c.EnvFrom {
		if m := from.ConfigMapRef; m != nil {
			add(configMaps, m.Name, m.Optional, whole)
		}
		if s := from.SecretRef; s != nil {
			add(secrets, s.Name, s.Optional, whole)
		}
	}
	for _, env := range c.Env {
		if env.ValueFrom == nil {
			continue
		}
		if m := env.ValueFrom.ConfigMapKeyRef; m != nil {
			add(configMaps, m.Name, m.Optional, func(o object) error {
				if found, ok := o.(*v1.ConfigMap); ok && has(found.Data, m.Key) {
					return nil
				}
				return fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", m.Key, pod.Namespace, m.Name)
			})
		}
		if s := env.ValueFrom.SecretKeyRef; s != nil {
			add(secrets, s.Name, s.Optional, func(o object) error {
				if hasKey(o, s.Key) {
					return nil
				}
				return fmt.Errorf("couldn't find key %v in Secret %v/%v", s.Key, pod.Namespace, s.Name)
			})
		}
	}
	return out
}

// hasKey reports whether the object has a value for the key.
func hasKey(o object, key string) bool {
	switch o := o.(type) {
	case *v1.ConfigMap:
		return has(o.Data, key) || has(o.BinaryData, key)
	case *v1.Secret:
		return has(o.Data, key)
	default:
		return false
	}
}

func has[V any](values map[string]V, key string) bool {
	_, is := values[key]
	return is
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
	for _, k := range envReferences(pod, c) {
		var err error
		if k.kind == configMaps {
			err = keep(ctx, out.ConfigMaps, pod, k.name, o.ConfigMap)
		} else {
			err = keep(ctx, out.Secrets, pod, k.name, o.Secret)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keep gets an object once, if it exists.
func keep[T any](ctx context.Context, into map[string]T, pod *v1.Pod, name string,
	get func(context.Context, *v1.Pod, string) (T, error)) error {
	if has(into, name) {
		return nil
	}
	found, err := get(ctx, pod, name)
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
