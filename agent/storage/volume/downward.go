package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

func downwardAPIs() plugin {
	p := written("downwardAPI", "kubernetes.io/downward-api", v1.StorageMediumMemory,
		func(_ context.Context, from sources, t target) (content, error) {
			s := t.volume.DownwardAPI
			return from.downwardAPI(t.pod, s.Items,
				from.look(s.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode, s.DefaultUser))
		})
	p.facts = func(used) facts { return facts{own: true, ordinary: true} }
	return p
}

// downwardAPI makes a file of each item, as long as there is room. It needs no API server.
func (s sources) downwardAPI(
	pod *v1.Pod, items []v1.DownwardAPIVolumeFile, look look,
) (content, error) {
	files := map[string]file{}
	var errs []error
	for _, item := range items {
		text, err := downwardText(pod, item, s.fields)
		errs = append(errs, err)
		if err := s.room.take(item.Path, len(text)); err != nil {
			return content{}, err
		}
		files[item.Path] = look.of([]byte(text), item.Mode, item.User)
	}
	return content{files: files}, errors.Join(errs...)
}

func downwardText(pod *v1.Pod, item v1.DownwardAPIVolumeFile, fields *cri.Fields) (string, error) {
	switch ref := item.ResourceFieldRef; {
	case item.FieldRef != nil && !strings.HasPrefix(item.FieldRef.FieldPath, "metadata."):
		return "", fmt.Errorf("fieldRef: field path %q is not one a file can have: use metadata.*",
			item.FieldRef.FieldPath)
	case item.FieldRef != nil:
		return fields.Field(item.FieldRef)
	case ref == nil:
		return "", fmt.Errorf("item %q has neither fieldRef nor resourceFieldRef", item.Path)
	default:
		c, _ := podspec.Find(pod, ref.ContainerName)
		if c == nil {
			return "", fmt.Errorf("resourceFieldRef: the pod has no container %q",
				ref.ContainerName)
		}
		return fields.Resource(pod, c, ref)
	}
}
