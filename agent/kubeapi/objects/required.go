package objects

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/podspec"
)

// requirement is an object that a volume, or a container's environment, needs.
type requirement struct {
	key
	// check reports what the object lacks, in the kubelet's words.
	check func(object) error
}

// required is what a pod cannot start without: nothing of it starts before all volumes are there,
// or while each container that may be the first lacks something.
type required struct{ volumes, first []requires }

// requires is what a volume or a container requires.
type requires struct {
	name string
	all  []requirement
}

// requiredBy reads the spec. Optional objects are not required, nor what a container needs that
// starts after another one, which may make it.
func requiredBy(pod *v1.Pod) (out required) {
	mounted := sets.New[string]()
	for c := range podspec.All(pod) {
		for _, m := range c.VolumeMounts {
			mounted.Insert(m.Name)
		}
	}
	for _, v := range pod.Spec.Volumes {
		if mounted.Has(v.Name) {
			out.volumes = append(out.volumes, requires{v.Name, volumeRequires(pod, v.VolumeSource)})
		}
	}
	for c, kind := range podspec.Containers(pod) {
		out.first = append(out.first, requires{c.Name, envRequires(pod, c)})
		if kind != podspec.Regular {
			break
		}
	}
	return out
}

func volumeRequires(pod *v1.Pod, v v1.VolumeSource) (out []requirement) {
	add := func(kind kind, name string, items []v1.KeyToPath, optional *bool, lacking string) {
		if ptr.Deref(optional, false) {
			return
		}
		out = append(out, requirement{key{kind, pod.Namespace, name}, func(o object) error {
			for _, item := range items {
				if !hasKey(o, item.Key) {
					return fmt.Errorf("%s: %s", lacking, item.Key)
				}
			}
			return nil
		}})
	}
	const ofMap = "configmap references non-existent config key"
	const ofSecret = "references non-existent secret key"
	switch {
	case v.ConfigMap != nil:
		add(configMaps, v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, ofMap)
	case v.Secret != nil:
		add(secrets, v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, ofSecret)
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			if m := source.ConfigMap; m != nil {
				add(configMaps, m.Name, m.Items, m.Optional, ofMap)
			}
			if s := source.Secret; s != nil {
				add(secrets, s.Name, s.Items, s.Optional, ofSecret)
			}
		}
	}
	return out
}

func envRequires(pod *v1.Pod, c *v1.Container) (out []requirement) {
	add := func(kind kind, name string, optional *bool, check func(object) error) {
		if !ptr.Deref(optional, false) {
			out = append(out, requirement{key{kind, pod.Namespace, name}, check})
		}
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
