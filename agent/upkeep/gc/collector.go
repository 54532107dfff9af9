package gc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/metric"
	"github.com/numalet/numalet/internal/oneline"
)

// Reasons of events of the node.
const (
	reasonImageGC  = "ImageGCFailed"
	reasonFree     = "FreeDiskSpaceFailed"
	reasonCapacity = "InvalidDiskCapacity"
	reasonImageID  = "InvalidImageID"
)

// Values of the metric's label.
const (
	byAge   = "age"
	bySpace = "space"
)

// ImagesConfig configures the removal of images.
type ImagesConfig struct {
	Policy ImagePolicy
	// List returns the runtime's images, InUse the ids, tags and digests of images in use.
	List  func(context.Context) ([]Image, error)
	InUse func(context.Context) (sets.Set[string], error)
	// Handlers: images are told apart by their runtime handlers (RuntimeClassInImageCriApi).
	Handlers bool
	// Disk returns the room on the filesystem of images.
	Disk func(context.Context) (Disk, error)
	// Remove removes an image.
	Remove func(context.Context, Image) error
	// Left is called after each look with the images that are left of those that existed at that time.
	Left func(left []Image, at time.Time)
	// Tell receives events of the node.
	Tell     func(eventType, reason, message string)
	Registry metrics.KubeRegistry
}

// Images removes unused images. Its knowledge of their use is lost when the agent ends, and starts anew.
type Images struct {
	cfg     ImagesConfig
	removed *metrics.CounterVec

	mu     sync.Mutex       // held by a look
	known  map[string]usage // by id, and handler if there is one
	failed bool             // whether the last look failed
}

// NewImages returns an Images; Look removes images.
func NewImages(c ImagesConfig) (*Images, error) {
	var s metric.Set
	g := &Images{cfg: c, known: map[string]usage{}, removed: s.Counters(
		"kubelet_image_garbage_collected_total", "Images removed that nothing used, by why.",
		"reason")}
	return g, s.Register(c.Registry)
}

// Look finds the images in use, and removes those that are too old or whose space is needed. Two
// failures in a row make an event.
func (g *Images) Look(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	_, err := g.look(ctx, g.cfg.Policy)
	if ctx.Err() != nil {
		return err
	}
	if err != nil && g.failed {
		g.cfg.Tell(v1.EventTypeWarning, reasonImageGC, err.Error())
	}
	g.failed = err != nil
	return err
}

// Free removes all images that nothing uses and that are old enough, however much room there is, and
// returns how many those were.
func (g *Images) Free(ctx context.Context) (removed int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := ImagePolicy{MinAge: g.cfg.Policy.MinAge}
	return g.look(ctx, all)
}

func (g *Images) look(ctx context.Context, policy ImagePolicy) (removed int, err error) {
	now := time.Now()
	all, err := g.cfg.List(ctx)
	if err != nil {
		return 0, fmt.Errorf("list images: %w", err)
	}
	all = slices.DeleteFunc(all, func(i Image) bool {
		if i.ID == "" {
			g.cfg.Tell(v1.EventTypeWarning, reasonImageID, fmt.Sprintf("ImageID is not valid, skipping, "+
				"image: %s", oneline.Of(strings.Join(i.Names, ", "))))
		}
		return i.ID == ""
	})
	inUse, err := g.cfg.InUse(ctx)
	if err != nil {
		return 0, fmt.Errorf("find images in use: %w", err)
	}
	unused := g.note(all, inUse, now)
	defer func() { g.cfg.Left(all, now) }()
	if policy.off() {
		return 0, nil
	}
	disk, err := g.disk(ctx)
	if err != nil {
		return 0, err
	}
	r := decide(unused, disk, policy, now)
	var errs []error
	remove := func(c candidate, why string) bool {
		if err := g.cfg.Remove(ctx, c.Image); err != nil {
			errs = append(errs, fmt.Errorf("remove image %s: %w", c.ID, err))
			return false
		}
		klog.FromContext(ctx).Info("Removed an image that nothing uses", "image", c.ID,
			"names", c.Names, "bytes", c.Size, "reason", why)
		g.removed.WithLabelValues(why).Inc()
		removed++
		all = slices.DeleteFunc(all, func(i Image) bool { return i.key() == c.key() })
		delete(g.known, c.key())
		return true
	}
	freed := uint64(0)
	for _, c := range r.old {
		if remove(c, byAge) {
			freed += c.Size
		}
	}
	for _, c := range r.spare {
		if freed >= r.free || ctx.Err() != nil {
			break
		}
		if remove(c, bySpace) {
			freed += c.Size
		}
	}
	if freed < r.free && policy.Low > 0 { // to free all of the disk was not the aim
		errs = append(errs, g.full(disk, freed))
	}
	return removed, errors.Join(errs...)
}

// note records the images in use, forgets images that are gone, and returns the unused ones.
func (g *Images) note(all []Image, inUse sets.Set[string], now time.Time) (out []candidate) {
	known := make(map[string]usage, len(all))
	for _, i := range all {
		u, ok := g.known[i.key()]
		if !ok {
			u.found = now
		}
		if i.usedBy(inUse) {
			u.used = now
		} else {
			out = append(out, candidate{i, u})
		}
		known[i.key()] = u
	}
	g.known = known
	return out
}

func (g *Images) disk(ctx context.Context) (Disk, error) {
	disk, err := g.cfg.Disk(ctx)
	if err != nil {
		return disk, fmt.Errorf("look at the filesystem of images: %w", err)
	}
	if disk.Capacity == 0 {
		err := errors.New("invalid capacity 0 on image filesystem")
		g.cfg.Tell(v1.EventTypeWarning, reasonCapacity, err.Error())
		return disk, err
	}
	disk.Available = min(disk.Available, disk.Capacity)
	return disk, nil
}

// full reports that the unused images are not enough.
func (g *Images) full(disk Disk, freed uint64) error {
	err := fmt.Errorf("Insufficient free disk space on the node's image filesystem (%d%% of "+ //nolint:staticcheck // the kubelet's words
		"%.1f GiB used). Failed to free sufficient space by deleting unused images (freed %d "+
		"bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or "+
		"other data.", disk.used(), float64(disk.Capacity)/(1<<30), freed)
	g.cfg.Tell(v1.EventTypeWarning, reasonFree, err.Error())
	return err
}
