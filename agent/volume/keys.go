package volume

import (
	"context"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
)

func configMaps() plugin {
	return written("configMap", "kubernetes.io/configmap", v1.StorageMediumDefault,
		func(ctx context.Context, from sources, t target) (content, error) {
			s := t.volume.ConfigMap
			mode := modeOf(s.DefaultMode, fs.FileMode(v1.ConfigMapVolumeSourceDefaultMode))
			files, err := from.configMapFiles(ctx, t.pod, s.Name,
				keys{items: s.Items, mode: mode, optional: ptr.Deref(s.Optional, false)})
			return content{files: files}, err
		})
}

func secrets() plugin {
	return written("secret", "kubernetes.io/secret", v1.StorageMediumMemory,
		func(ctx context.Context, from sources, t target) (content, error) {
			s := t.volume.Secret
			mode := modeOf(s.DefaultMode, fs.FileMode(v1.SecretVolumeSourceDefaultMode))
			files, err := from.secretFiles(ctx, t.pod, s.SecretName,
				keys{items: s.Items, mode: mode, optional: ptr.Deref(s.Optional, false)})
			return content{files: files}, err
		})
}

// keys says which keys of an object become files, and which.
type keys struct {
	items    []v1.KeyToPath // none: all keys under their own names
	mode     fs.FileMode
	optional bool // what is missing is left out
	// lacking is what is said of a key that is missing.
	lacking string
}

func (s sources) configMapFiles(
	ctx context.Context, pod *v1.Pod, name string, k keys,
) (map[string]file, error) {
	objects, err := s.server()
	if err != nil {
		return nil, err
	}
	c, err := objects.ConfigMap(ctx, pod, name)
	if k.optional && apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := make(map[string][]byte, len(c.Data)+len(c.BinaryData))
	for key, text := range c.Data {
		data[key] = []byte(text)
	}
	for key, bytes := range c.BinaryData {
		data[key] = bytes
	}
	k.lacking = "configmap references non-existent config key"
	return k.files(data)
}

func (s sources) secretFiles(
	ctx context.Context, pod *v1.Pod, name string, k keys,
) (map[string]file, error) {
	objects, err := s.server()
	if err != nil {
		return nil, err
	}
	found, err := objects.Secret(ctx, pod, name)
	if k.optional && apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	k.lacking = "references non-existent secret key"
	return k.files(found.Data)
}

func (k keys) files(data map[string][]byte) (map[string]file, error) {
	out := map[string]file{}
	if len(k.items) == 0 {
		for key, bytes := range data {
			out[key] = file{data: bytes, mode: k.mode}
		}
		return out, nil
	}
	for _, item := range k.items {
		bytes, has := data[item.Key]
		switch {
		case has:
			out[item.Path] = file{data: bytes, mode: modeOf(item.Mode, k.mode)}
		case !k.optional:
			return nil, fmt.Errorf("%s: %s", k.lacking, item.Key)
		}
	}
	return out, nil
}
