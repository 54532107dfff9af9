package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/numalet/numalet/agent/gc"
	"github.com/numalet/numalet/agent/housekeeping"
	"github.com/numalet/numalet/agent/stats/diskusage"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// imagesPeriod is how often is looked at images and the room for them: a disk may fill fast.
const imagesPeriod = 30 * time.Second

// newImageGC removes images that nothing uses.
func newImageGC(n node, p parts) (*housekeeping.Housekeeping, error) {
	k := &n.cfg.Kubelet
	images, err := gc.NewImages(gc.ImagesConfig{
		Policy: gc.ImagePolicy{
			High: int(*k.ImageGCHighThresholdPercent), Low: int(*k.ImageGCLowThresholdPercent),
			MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
		},
		List: func(ctx context.Context) ([]gc.Image, error) { return listImages(ctx, n.client) },
		InUse: func(ctx context.Context) (sets.Set[string], error) {
			used, err := n.client.ImagesInUse(ctx)
			return used.Union(imagesOf(p.statuses.Active())), err
		},
		Disk:   func(ctx context.Context) (gc.Disk, error) { return imageDisk(ctx, n.client) },
		Remove: n.client.RemoveImage, Tell: n.events.OnNode, Registry: n.registry,
		Left: func(left []gc.Image, at time.Time) { keepRecords(n.runtime.images, left, at) },
	})
	if err != nil {
		return nil, err
	}
	return housekeeping.New(housekeeping.Task{
		Name: "unused images", Period: imagesPeriod, Run: images.Look,
		First: time.Second, // which only sees what there is: nothing has an age yet
	}), nil
}

func listImages(ctx context.Context, client *cri.Client) ([]gc.Image, error) {
	all, err := client.ListImages(ctx)
	out := make([]gc.Image, 0, len(all))
	for _, i := range all {
		out = append(out, gc.Image{ID: i.GetId(), Size: i.GetSize(), Pinned: i.GetPinned(),
			Names: slices.Concat(i.GetRepoTags(), i.GetRepoDigests())})
	}
	return out, err
}

// imagesOf are the images that pods name, for containers that are yet to be made and for volumes.
func imagesOf(pods []*v1.Pod) sets.Set[string] {
	out := sets.New[string]()
	for _, pod := range pods {
		for c := range podspec.All(pod) {
			out.Insert(c.Image, cri.FullName(c.Image))
		}
		for _, v := range pod.Spec.Volumes {
			if v.Image != nil {
				out.Insert(v.Image.Reference, cri.FullName(v.Image.Reference))
			}
		}
	}
	return out
}

// imageDisk is the filesystem that the runtime has its images on.
func imageDisk(ctx context.Context, client *cri.Client) (gc.Disk, error) {
	images, _, err := client.ImageFilesystems(ctx)
	if err != nil {
		return gc.Disk{}, err
	}
	at := images.GetFsId().GetMountpoint()
	if at == "" {
		return gc.Disk{}, errors.New("the runtime does not tell where it is")
	}
	room, err := diskusage.Filesystem(at)
	return gc.Disk{Capacity: room.Capacity, Available: room.Available}, err
}
