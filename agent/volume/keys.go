package volume

import (
	"context"
	"fmt"
	"io/fs"
	"maps"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

func configMaps() plugin {
	return written("configMap", "kubernetes.io/configmap", v1.StorageMediumDefault,
		func(ctx context.Context, from sources, t target) (content, error) {
			s := t.volume.ConfigMap
			mode := modeOf(s.DefaultMode, fs.FileMode(v1.ConfigMapVolumeSourceDefaultMode))
			return from.projection(ctx, t.pod, v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{
				LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional,
			}}, mode)
		})
}

func secrets() plugin {
	return written("secret", "kubernetes.io/secret", v1.StorageMediumMemory,
		func(ctx context.Context, from sources, t target) (content, error) {
			s := t.volume.Secret
			mode := modeOf(s.DefaultMode, fs.FileMode(v1.SecretVolumeSourceDefaultMode))
			return from.projection(ctx, t.pod, v1.VolumeProjection{Secret: &v1.SecretProjection{
				LocalObjectReference: v1.LocalObjectReference{Name: s.SecretName},
				Items:                s.Items, Optional: s.Optional}}, mode)
		})
}

// keys says which keys of an object become files, and which.
type keys struct {
	items    []v1.KeyToPath // none: all keys under their own names
	mode     fs.FileMode
	optional *bool // what is missing is left out
}

func (s sources) configMap(
	ctx context.Context, pod *v1.Pod, p *v1.ConfigMapProjection, mode fs.FileMode,
) (content, error) {
	k := keys{p.Items, mode, p.Optional}
	c, err := s.objects.ConfigMap(ctx, pod, p.Name)
	if err != nil {
		return content{}, k.missing(err)
	}
	data := make(map[string][]byte, len(c.Data)+len(c.BinaryData))
	for key, text := range c.Data {
		data[key] = []byte(text)
	}
	maps.Copy(data, c.BinaryData)
	return k.files(data, "configmap references non-existent config key")
}

func (s sources) secret(
	ctx context.Context, pod *v1.Pod, p *v1.SecretProjection, mode fs.FileMode,
) (content, error) {
	k := keys{p.Items, mode, p.Optional}
	found, err := s.objects.Secret(ctx, pod, p.Name)
	if err != nil {
		return content{}, k.missing(err)
	}
	return k.files(found.Data, "references non-existent secret key")
}

// missing is the error of an object that could not be had; nil if it may be missing and is.
func (k keys) missing(err error) error {
	if ptr.Deref(k.optional, false) && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// files are those of the keys. lacking is what is said of a key that is missing.
func (k keys) files(data map[string][]byte, lacking string) (content, error) {
	out := map[string]file{}
	if len(k.items) == 0 {
		for key, bytes := range data {
			out[key] = file{data: bytes, mode: k.mode}
		}
	}
	for _, item := range k.items {
		bytes, has := data[item.Key]
		switch {
		case has:
			out[item.Path] = file{data: bytes, mode: modeOf(item.Mode, k.mode)}
		case !ptr.Deref(k.optional, false):
			return content{}, fmt.Errorf("%s: %s", lacking, item.Key)
		}
	}
	return content{files: out}, nil
}
