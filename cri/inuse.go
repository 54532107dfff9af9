package cri

import (
	"context"
	"fmt"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/sets"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListImages returns the runtime's images.
func (c *Client) ListImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	return c.images.ListImages(quiet(ctx), nil)
}

// RemoveImage removes an image with all its names, of a runtime handler or, with "", of the default one.
func (c *Client) RemoveImage(ctx context.Context, id, handler string) error {
	return c.images.RemoveImage(quiet(ctx), &runtimeapi.ImageSpec{Image: id, RuntimeHandler: handler})
}

// ImagesInUse returns the ids and names of all images of the runtime's containers, including exited
// containers and those of other agents.
func (c *Client) ImagesInUse(ctx context.Context) (sets.Set[string], error) {
	all, err := c.runtime.ListContainers(quiet(ctx), nil)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	out := sets.New[string]()
	for _, one := range all {
		for _, name := range []string{one.GetImageRef(), one.GetImageId(), one.GetImage().GetImage()} {
			out.Insert(name, ImageOf(name, one.GetImage().GetRuntimeHandler()))
		}
	}
	out.Delete("")
	return out, nil
}

// ImageOf names an image as one of a runtime handler; "" is the default handler, and the image's own
// name.
func ImageOf(image, handler string) string {
	if image == "" || handler == "" {
		return image
	}
	return image + "," + handler
}

// FullName returns an image's name as runtimes list it, with its registry and a tag or digest. It
// returns invalid names unchanged.
func FullName(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return reference.TagNameOnly(named).String()
}
