package gc

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageStore is a runtime with one image in use, on a filesystem.
type imageStore struct{ mountpoint string }

func (imageStore) ListImages(context.Context) ([]*runtimeapi.Image, error) {
	return []*runtimeapi.Image{{Id: "1", Size: 5, Pinned: true,
		RepoTags: []string{"a:1"}, RepoDigests: []string{"a@sha256:0"}}}, nil
}

func (imageStore) ImagesInUse(context.Context) (sets.Set[string], error) {
	return sets.New("used"), nil
}

func (s imageStore) ImageFilesystems(context.Context) (images, _ *runtimeapi.FilesystemUsage, _ error) {
	return &runtimeapi.FilesystemUsage{
		FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: s.mountpoint}}, nil, nil
}

func (imageStore) RemoveImage(context.Context, string, string) error { return nil }

// Images are in use that the runtime uses, and those that active pods name, also by their full names
// and in volumes; without a mount point the room is not known.
func TestRuntime(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Image: "init"}},
		Containers:     []v1.Container{{Image: "example.com/app:2"}},
		Volumes: []v1.Volume{{Name: "none"}, {VolumeSource: v1.VolumeSource{
			Image: &v1.ImageVolumeSource{Reference: "data"}}}},
	}}
	c := ImagesConfig{}.Of(imageStore{t.TempDir()}, func() []*v1.Pod { return []*v1.Pod{pod} })
	used, err := c.InUse(t.Context())
	for _, name := range []string{"used", "init", "docker.io/library/init:latest",
		"example.com/app:2", "data", "docker.io/library/data:latest"} {
		if !used.Has(name) || err != nil {
			t.Errorf("%s is not in use: %v", name, err)
		}
	}
	all, err := c.List(t.Context())
	if err != nil || len(all) != 1 || all[0].ID != "1" || all[0].Size != 5 || !all[0].Pinned ||
		!slices.Equal(all[0].Names, []string{"a:1", "a@sha256:0"}) {
		t.Errorf("images %+v, %v", all, err)
	}
	if d, err := c.Disk(t.Context()); err != nil || d.Capacity == 0 || d.Available > d.Capacity {
		t.Errorf("disk %+v, %v", d, err)
	}
	c = ImagesConfig{}.Of(imageStore{}, func() []*v1.Pod { return nil })
	if d, err := c.Disk(t.Context()); err == nil {
		t.Errorf("no mount point has %+v", d)
	}
}
