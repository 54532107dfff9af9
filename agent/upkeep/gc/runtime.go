package gc

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Runtime is the container runtime; *cri.Client is.
type Runtime interface {
	ListImages(context.Context) ([]*runtimeapi.Image, error)
	ImagesInUse(context.Context) (sets.Set[string], error)
	ImageFilesystems(context.Context) (images, containers *runtimeapi.FilesystemUsage, err error)
	RemoveImage(ctx context.Context, id, handler string) error
}

// Of sets what the runtime tells of its images. active returns the pods that are to run: their
// images are in use before their containers exist.
func (c ImagesConfig) Of(r Runtime, active func() []*v1.Pod) ImagesConfig {
	c.Remove = func(ctx context.Context, i Image) error { return r.RemoveImage(ctx, i.ID, i.Handler) }
	c.List = func(ctx context.Context) ([]Image, error) { return list(ctx, r, c.Handlers) }
	c.Disk = func(ctx context.Context) (Disk, error) { return disk(ctx, r) }
	c.InUse = func(ctx context.Context) (sets.Set[string], error) {
		used, err := r.ImagesInUse(ctx)
		return used.Union(named(active())), err
	}
	return c
}

func list(ctx context.Context, r Runtime, handlers bool) ([]Image, error) {
	all, err := r.ListImages(ctx)
	out := make([]Image, 0, len(all))
	for _, i := range all {
		one := Image{ID: i.GetId(), Size: i.GetSize(), Pinned: i.GetPinned(),
			Names: slices.Concat(i.GetRepoTags(), i.GetRepoDigests())}
		if handlers {
			one.Handler = i.GetSpec().GetRuntimeHandler()
		}
		out = append(out, one)
	}
	return out, err
}

// named returns the images that pods name, of containers and of volumes.
func named(pods []*v1.Pod) sets.Set[string] {
	out := sets.New[string]()
	insert := func(image string) {
		for _, name := range []string{image, cri.FullName(image)} {
			out.Insert(name, cri.ImageOf(name, anyHandler))
		}
	}
	for _, pod := range pods {
		for c := range podspec.All(pod) {
			insert(c.Image)
		}
		for _, v := range pod.Spec.Volumes {
			if v.Image != nil {
				insert(v.Image.Reference)
			}
		}
	}
	return out
}

// disk reads the filesystem that holds the runtime's images.
func disk(ctx context.Context, r Runtime) (Disk, error) {
	images, _, err := r.ImageFilesystems(ctx)
	if err != nil {
		return Disk{}, err
	}
	at := images.GetFsId().GetMountpoint()
	if at == "" {
		return Disk{}, errors.New("the runtime does not tell where it is")
	}
	room, err := diskusage.Filesystem(at)
	return Disk{Capacity: room.Capacity, Available: room.Available}, err
}
