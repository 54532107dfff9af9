package cri

import (
	"context"
	"fmt"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages lists what the runtime has.
func (c *Client) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	return c.images.ListImages(quiet(ctx), nil)
}

// RemoveImage removes an image with all its names.
func (c *Client) RemoveImage(ctx context.Context, id string) error {
	return c.images.RemoveImage(quiet(ctx), &runtimeapi.ImageSpec{Image: id})
}

// ImagesInUse are the ids and names of the images that the runtime's containers were made of, those
// of other agents and those that have exited among them.
func (c *Client) ImagesInUse(ctx context.Context) (sets.Set[string], error) {
	all, err := c.runtime.ListContainers(quiet(ctx), nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := sets.New[string]()
	for _, one := range all {
		out.Insert(one.GetImageRef(), one.GetImageId(), one.GetImage().GetImage())
	}
	out.Delete("")
	return out, nil
}

// FullName is the name of an image as runtimes list it, with its registry and a tag or digest. A
// name that is none is returned as it is.
func FullName(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return reference.TagNameOnly(named).String()
}
