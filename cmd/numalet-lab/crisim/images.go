package crisim

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// image is a pulled image. Its digest is the digest of its name, since it has no content.
type image struct {
	name string // normalized
	user string // the image's uid or user name; "": root
}

func digestOf(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

func (i image) digest() string { return digestOf(i.name) }

// id differs from the digest, as a config's digest differs from a manifest's.
func (i image) id() string { return digestOf("config of " + i.name) }

func (i image) repository() string {
	named, err := reference.ParseNormalizedNamed(i.name)
	if err != nil {
		return i.name
	}
	return named.Name()
}

func (i image) message() *runtimeapi.Image {
	out := &runtimeapi.Image{
		Id:          i.id(),
		RepoDigests: []string{i.repository() + "@" + i.digest()},
		Size:        1 << 20,
		Spec:        &runtimeapi.ImageSpec{Image: i.id()},
	}
	if !strings.Contains(i.name, "@") {
		out.RepoTags = []string{i.name}
	}
	if uid, err := strconv.ParseInt(i.user, 10, 64); err == nil {
		out.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		out.Username = i.user // none is root, as containerd tells it
	}
	return out
}

// normalize adds the registry and tag to an image name, as a pull does. Invalid names stay
// unchanged.
func normalize(name string) string {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name
	}
	return reference.TagNameOnly(named).String()
}

// images is the image store.
type images struct {
	mu      sync.Mutex
	pulled  map[string]image // by normalized name
	missing []string         // path.Match patterns of names that cannot be pulled
	users   map[string]string
}

func newImages(cfg Config) *images {
	s := &images{pulled: map[string]image{}, missing: cfg.Missing, users: cfg.ImageUsers}
	for _, name := range cfg.Images {
		s.pulled[normalize(name)] = s.make(name)
	}
	return s
}

func (s *images) make(name string) image {
	return image{name: normalize(name), user: s.users[name]}
}

// find returns a pulled image by name, by id, or by repository and digest.
func (s *images) find(ref string) (image, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ref == "" {
		return image{}, false
	}
	if img, ok := s.pulled[normalize(ref)]; ok {
		return img, true
	}
	for _, img := range s.pulled {
		if ref == img.id() || normalize(ref) == img.repository()+"@"+img.digest() {
			return img, true
		}
	}
	return image{}, false
}

func (s *images) pull(name string) (image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.absentLocked(name) {
		full := normalize(name)
		return image{}, status.Errorf(codes.NotFound, "failed to pull and unpack image %q: "+
			"failed to resolve reference %q: %s: not found", full, full, full)
	}
	img := s.make(name)
	s.pulled[img.name] = img
	return img, nil
}

func (s *images) absentLocked(name string) bool {
	base, _, _ := strings.Cut(path.Base(name), ":")
	return base == "missing" || slices.ContainsFunc(s.missing, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return err == nil && ok
	})
}

func (s *images) remove(ref string) {
	img, ok := s.find(ref)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pulled, img.name)
}

func (s *images) setMissing(patterns []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = patterns
}

// list is sorted by name.
func (s *images) list() []image {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.pulled),
		func(a, b image) int { return strings.Compare(a.name, b.name) })
}

// imageService serves CRI's ImageService.
type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
	*Server
}

// ListImages filters by the name, id or digest of the filter's image.
func (r *imageService) ListImages(
	_ context.Context, req *runtimeapi.ListImagesRequest,
) (*runtimeapi.ListImagesResponse, error) {
	out := &runtimeapi.ListImagesResponse{}
	want := req.GetFilter().GetImage().GetImage()
	one, ok := r.images.find(want)
	for _, img := range r.images.list() {
		if want == "" || (ok && img == one) {
			out.Images = append(out.Images, img.message())
		}
	}
	return out, nil
}

// ImageStatus answers without an image if the image was not pulled.
func (r *imageService) ImageStatus(
	_ context.Context, req *runtimeapi.ImageStatusRequest,
) (*runtimeapi.ImageStatusResponse, error) {
	img, ok := r.images.find(req.GetImage().GetImage())
	if !ok {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: img.message()}, nil
}

// PullImage returns the image's id.
func (r *imageService) PullImage(
	_ context.Context, req *runtimeapi.PullImageRequest,
) (*runtimeapi.PullImageResponse, error) {
	name := req.GetImage().GetImage()
	if name == "" {
		return nil, status.Error(codes.InvalidArgument, "image name is empty")
	}
	img, err := r.images.pull(name)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PullImageResponse{ImageRef: img.id()}, nil
}

// RemoveImage removes an image; it is no error if the image is not there.
func (r *imageService) RemoveImage(
	_ context.Context, req *runtimeapi.RemoveImageRequest,
) (*runtimeapi.RemoveImageResponse, error) {
	r.images.remove(req.GetImage().GetImage())
	return &runtimeapi.RemoveImageResponse{}, nil
}

// ImageFsInfo reports one filesystem for both images and containers.
func (r *imageService) ImageFsInfo(
	context.Context, *runtimeapi.ImageFsInfoRequest,
) (*runtimeapi.ImageFsInfoResponse, error) {
	n := uint64(len(r.images.list()))
	usage := []*runtimeapi.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes:  &runtimeapi.UInt64Value{Value: n << 20},
		InodesUsed: &runtimeapi.UInt64Value{Value: n},
	}}
	return &runtimeapi.ImageFsInfoResponse{
		ImageFilesystems: usage, ContainerFilesystems: usage,
	}, nil
}
