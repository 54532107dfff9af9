package volume

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

func configMaps() plugin {
	return written("configMap", "kubernetes.io/configmap", v1.StorageMediumDefault,
		func(ctx context.Context, from sources, t target) (content, error) {
			s := t.volume.ConfigMap
			look := from.look(s.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode, s.DefaultUser)
			return from.projection(ctx, t.pod, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
				LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional,
			}}, look)
		})
}

func secrets() plugin {
	return written("secret", "kubernetes.io/secret", v1.StorageMediumMemory,
		func(ctx context.Context, from sources, t target) (content, error) {
			s := t.volume.Secret
			look := from.look(s.DefaultMode, v1.SecretVolumeSourceDefaultMode, s.DefaultUser)
			return from.projection(ctx, t.pod, v1.VolumeProjection{Secret: &v1.SecretProjection{
				LocalObjectReference: v1.LocalObjectReference{Name: s.SecretName},
				Items:                s.Items, Optional: s.Optional}}, look)
		})
}

// keys selects the keys of an object that become files.
type keys struct {
	items    []v1.KeyToPath // none: all keys under their own names
	look     look
	optional *bool // missing keys are left out
}

func (s sources) configMap(
	ctx context.Context, pod *v1.Pod, p *v1.ConfigMapProjection, look look,
) (content, error) {
	k := keys{p.Items, look, p.Optional}
	c, err := s.objects.ConfigMap(ctx, pod, p.Name)
	if err != nil {
		return content{}, k.missing(err)
	}
	return k.files(s.room, values{c.Data, c.BinaryData},
		"configmap references non-existent config key")
}

func (s sources) secret(
	ctx context.Context, pod *v1.Pod, p *v1.SecretProjection, look look,
) (content, error) {
	k := keys{p.Items, look, p.Optional}
	found, err := s.objects.Secret(ctx, pod, p.Name)
	if err != nil {
		return content{}, k.missing(err)
	}
	return k.files(s.room, values{bytes: found.Data}, "references non-existent secret key")
}

// missing returns the error of an object that could not be read; nil if the object does not exist
// and is optional.
func (k keys) missing(err error) error {
	if ptr.Deref(k.optional, false) && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// values are an object's values, by key. They are copied only into files.
type values struct {
	text  map[string]string
	bytes map[string][]byte
}

// size returns the number of bytes of a key's value.
func (v values) size(key string) (size int, has bool) {
	if data, has := v.bytes[key]; has {
		return len(data), true
	}
	text, has := v.text[key]
	return len(text), has
}

func (v values) of(key string) []byte {
	if data, has := v.bytes[key]; has {
		return data
	}
	return []byte(v.text[key])
}

// all returns items that make each key a file of its own name.
func (v values) all() []v1.KeyToPath {
	out := make([]v1.KeyToPath, 0, len(v.text)+len(v.bytes))
	for key := range v.bytes {
		out = append(out, v1.KeyToPath{Key: key, Path: key})
	}
	for key := range v.text {
		if _, twice := v.bytes[key]; !twice {
			out = append(out, v1.KeyToPath{Key: key, Path: key})
		}
	}
	return out
}

// files returns the files of the selected keys. lacking begins the error for a missing key.
func (k keys) files(left *room, data values, lacking string) (content, error) {
	items := k.items
	if len(items) == 0 {
		items = data.all()
	}
	out := map[string]file{}
	for _, item := range items {
		size, has := data.size(item.Key)
		switch {
		case has:
			if err := left.take(item.Path, size); err != nil {
				return content{}, err
			}
			out[item.Path] = k.look.of(data.of(item.Key), item.Mode, item.User)
		case !ptr.Deref(k.optional, false):
			return content{}, fmt.Errorf("%s: %s", lacking, item.Key)
		}
	}
	return content{files: out}, nil
}
