package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"github.com/numalet/numalet/internal/await"
)

// ImageService lists the runtime calls that Images uses.
type ImageService interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool,
	) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// ImagesConfig limits the pulls and checks who may use an image.
type ImagesConfig struct {
	// Serialize pulls one image at a time; it wins over MaxParallel.
	Serialize bool
	// MaxParallel bounds concurrent pulls; 0: no bound.
	MaxParallel int
	// QPS and Burst bound how many pulls start per second; QPS 0: no bound. Further pulls wait.
	QPS   float32
	Burst int
	// Logins returns the node's logins for an image that a pod wants, in groups: the first group is
	// tried first, after the pod's own logins. It gets the image's full name without tag and digest.
	// Logins returned with an error are still used. If nil, the node has none.
	Logins func(ctx context.Context, pod *v1.Pod, image string) ([][]Login, error)
	// Records holds the logins that images were pulled with; if nil, every pod may use every image.
	Records PullRecords
	// Pulled gets every image that was pulled, Asked every request. Both may be nil and must not
	// block.
	Pulled func(Pull)
	Asked  func(Asked)
}

// PullRecords holds the logins that images were pulled with, and thus which pods may use them. Its
// methods may be called from any goroutine.
type PullRecords interface {
	// Pulling is called before the image of that name is pulled. Afterwards Pulled is called with the
	// runtime's image id and the holder of the login that worked, or Failed.
	Pulling(image string) error
	Pulled(image, id string, by Holder)
	Failed(image string)
	// Accessible reports whether a pod may use an image that the runtime has. held returns the holders
	// of the pod's logins for it; it may take long.
	Accessible(image, id string, held func() []Holder) bool
}

// Pull is an image that was pulled for a pod.
type Pull struct {
	Pod  types.UID
	Took time.Duration // including the wait for a free slot
	Size uint64        // of the image in bytes
}

// Asked is the outcome of a request for an image, up to the step that it reached.
type Asked struct {
	Policy v1.PullPolicy
	// Present reports whether the runtime had the image, Pull whether a pull was needed; nil: not
	// found out.
	Present, Pull *bool
}

// Images makes images present before containers are created. Its methods may be called from any
// goroutine. It holds no lock during a call to the runtime, and the wait for a slot to pull ends
// with the context.
type Images struct {
	service  ImageService
	slots    chan struct{} // one element per running pull; nil: no bound
	pace     *pullPace
	failures pullFailures
	cfg      ImagesConfig
}

// NewImages returns an Images that pulls through service.
func NewImages(service ImageService, cfg ImagesConfig) *Images {
	if cfg.Pulled == nil {
		cfg.Pulled = func(Pull) {}
	}
	if cfg.Asked == nil {
		cfg.Asked = func(Asked) {}
	}
	if cfg.Logins == nil {
		cfg.Logins = func(context.Context, *v1.Pod, string) ([][]Login, error) { return nil, nil }
	}
	m := &Images{service: service, pace: newPullPace(cfg.QPS, cfg.Burst), cfg: cfg}
	switch {
	case cfg.Serialize:
		m.slots = make(chan struct{}, 1)
	case cfg.MaxParallel > 0:
		m.slots = make(chan struct{}, cfg.MaxParallel)
	}
	return m
}

// ImageRequest asks for one container's image.
type ImageRequest struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Sandbox is handed to the runtime with a pull.
	Sandbox *runtimeapi.PodSandboxConfig
	// Handler is the runtime handler that the image is for; "": the runtime decides.
	Handler string
	// Restart is set if the container ran before.
	Restart bool
	// Pulls is called before a pull, which may take long. It may be nil.
	Pulls func()
	// Secrets returns the pod's image pull secrets, and the names of those that cannot be read. It is
	// called only before a pull; nil: there are none.
	Secrets func(ctx context.Context) (secrets []*v1.Secret, missing []string)
	// Report receives the events about the image; eventType is v1.EventTypeNormal or -Warning. It may
	// be nil.
	Report func(eventType, reason, message string)
}

// uninspected reports, and returns as an error, that the image could not be identified.
func (r ImageRequest) uninspected(reason, message string, err error) error {
	r.Report(v1.EventTypeWarning, "InspectFailed", message)
	return &StartError{Reason: reason, Message: message, Err: err}
}

// ImageRef is an image that the runtime has.
type ImageRef struct {
	// Ref is the runtime's own name of the image, for CreateContainer.
	Ref  string
	User ImageUser
}

// Ensure makes the container's image present according to its pull policy. The error is a
// *StartError. After a failed pull its RetryAt is a second later; the next call then returns
// ReasonImagePullBackOff, with the end of the back-off as RetryAt.
func (m *Images) Ensure(ctx context.Context, r ImageRequest) (ImageRef, error) {
	if r.Report == nil {
		r.Report = func(string, string, string) {}
	}
	policy := PullPolicy(r.Container)
	asked := Asked{Policy: policy}
	defer func() { m.cfg.Asked(asked) }()
	name, err := taggedName(r.Container.Image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", r.Container.Image, err)
		return ImageRef{}, r.uninspected(ReasonInvalidImageName, message, err)
	}
	spec := &runtimeapi.ImageSpec{Image: name, Annotations: r.Pod.Annotations, RuntimeHandler: r.Handler}

	if policy != v1.PullAlways {
		ref, err := m.present(ctx, spec, r, &asked)
		if err != nil || ref.Ref != "" {
			return ref, err
		}
	}
	asked.Pull = new(true)
	return m.pull(ctx, spec, r)
}

// present returns the image if the runtime has it and the pod may use it. An empty result without
// an error asks for a pull. It records in asked what it found.
func (m *Images) present(
	ctx context.Context, spec *runtimeapi.ImageSpec, r ImageRequest, asked *Asked,
) (ImageRef, error) {
	image, err := m.inspect(ctx, spec)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", spec.Image, err)
		return ImageRef{}, r.uninspected(ReasonImageInspect, message, err)
	}
	asked.Present = new(image != nil)
	if image != nil {
		asked.Pull = new(!m.accessible(ctx, spec.Image, image.Id, r))
	}
	switch {
	case image != nil && !*asked.Pull:
		m.failures.forget(failureKey{r.Pod.UID, spec.Image})
		message := fmt.Sprintf("Container image %q already present on machine", spec.Image)
		if m.cfg.Records != nil {
			message += " and can be accessed by the pod"
		}
		r.Report(v1.EventTypeNormal, "Pulled", message)
		return imageRef(image.Id, image), nil
	case asked.Policy == v1.PullNever:
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never",
			spec.Image)
		r.Report(v1.EventTypeWarning, ReasonImageNeverPull, message)
		return ImageRef{}, &StartError{Reason: ReasonImageNeverPull, Message: message}
	}
	return ImageRef{}, nil
}

func (m *Images) inspect(
	ctx context.Context, spec *runtimeapi.ImageSpec,
) (*runtimeapi.Image, error) {
	answer, err := m.service.ImageStatus(ctx, spec, false)
	if err != nil {
		return nil, err
	}
	image := answer.GetImage()
	if image != nil && image.Id == "" {
		return nil, fmt.Errorf("image status of %q has no image id", spec.Image)
	}
	return image, nil
}

// pull pulls the image, unless earlier failures back it off.
func (m *Images) pull(
	ctx context.Context, spec *runtimeapi.ImageSpec, r ImageRequest,
) (ImageRef, error) {
	key := failureKey{r.Pod.UID, spec.Image}
	if until, last := m.failures.backedOff(key, time.Now()); last != nil {
		message := fmt.Sprintf("Back-off pulling image %q", spec.Image)
		r.Report(v1.EventTypeNormal, "BackOff", message)
		return ImageRef{}, &StartError{
			Reason:  ReasonImagePullBackOff,
			Message: message + ": " + last.Error(),
			Err:     last,
			RetryAt: until,
		}
	}
	r.Report(v1.EventTypeNormal, "Pulling", fmt.Sprintf("Pulling image %q", spec.Image))
	if r.Pulls != nil {
		r.Pulls()
	}
	asked := time.Now()
	ref, took, err := m.pullWithLogins(ctx, spec, r)
	if ctx.Err() != nil {
		// The caller gave up; the image is not to blame.
		return ImageRef{}, &StartError{
			Reason: ReasonImagePull, Message: "pull of " + spec.Image + " was cancelled",
			Err: context.Cause(ctx),
		}
	}
	if err != nil {
		r.Report(v1.EventTypeWarning, "Failed",
			fmt.Sprintf("Failed to pull image %q: %v", spec.Image, err))
		failed := pullError(spec.Image, err)
		m.failures.add(key, failed, time.Now())
		failed.RetryAt = time.Now().Add(pullFailureShown)
		return ImageRef{}, failed
	}
	m.failures.forget(key)
	waited := time.Since(asked)

	pulled := &runtimeapi.ImageSpec{Image: ref, Annotations: spec.Annotations,
		RuntimeHandler: spec.RuntimeHandler}
	image, err := m.inspect(ctx, pulled)
	if err == nil && image == nil {
		err = fmt.Errorf("the runtime does not have image %s that it just pulled", ref)
	}
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", ref, err)
		return ImageRef{}, r.uninspected(ReasonImageInspect, message, err)
	}
	r.Report(v1.EventTypeNormal, "Pulled", fmt.Sprintf(
		"Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		spec.Image,
		took.Truncate(time.Millisecond), waited.Truncate(time.Millisecond), image.Size))
	m.cfg.Pulled(Pull{Pod: r.Pod.UID, Took: waited, Size: image.Size})
	return imageRef(ref, image), nil
}

// acquire waits for a free slot to pull; done frees it.
func (m *Images) acquire(ctx context.Context, r ImageRequest) (done func(), err error) {
	if err := m.pace.wait(ctx, r.Restart); err != nil {
		return nil, err
	}
	if m.slots == nil {
		return func() {}, nil
	}
	if !await.Send(ctx, m.slots, struct{}{}) {
		return nil, ctx.Err()
	}
	return func() { <-m.slots }, nil
}

// pullError returns the reason of a failed pull. Runtimes put the reason at the front of the
// message.
func pullError(image string, err error) *StartError {
	for _, known := range []struct {
		mark   error
		reason string
		what   string
	}{
		{crierrors.ErrRegistryUnavailable, ReasonRegistryUnavailable,
			"the registry is unavailable"},
		{crierrors.ErrSignatureValidationFailed, ReasonSignatureValidation,
			"the signature validation failed"},
	} {
		_, detail, found := strings.Cut(err.Error(), known.mark.Error())
		if found {
			message := fmt.Sprintf("image pull failed for %s because %s%s",
				image, known.what, detail)
			return &StartError{Reason: known.reason, Message: message, Err: err}
		}
	}
	return &StartError{Reason: ReasonImagePull, Message: err.Error(), Err: err}
}

// imageRef sets root if the image names no user: the runtime refuses a group for a container
// without a user.
func imageRef(ref string, image *runtimeapi.Image) ImageRef {
	out := ImageRef{Ref: ref, User: ImageUser{Username: image.GetUsername()}}
	if uid := image.GetUid(); uid != nil || out.User.Username == "" {
		out.User.UID = new(uid.GetValue())
	}
	return out
}

// taggedName returns the image as written, with the tag "latest" if it has neither tag nor digest.
func taggedName(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if reference.IsNameOnly(named) {
		image += ":latest"
	}
	return image, nil
}

// Repository returns the full name of an image, with its registry and without tag and digest.
func Repository(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return named.Name()
}

// PullPolicy returns the container's pull policy. The default is Always for the tag "latest",
// written or implied, and IfNotPresent otherwise.
func PullPolicy(container *v1.Container) v1.PullPolicy {
	if container.ImagePullPolicy != "" {
		return container.ImagePullPolicy
	}
	named, err := reference.ParseNormalizedNamed(container.Image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	tagged, hasTag := named.(reference.Tagged)
	_, hasDigest := named.(reference.Digested)
	if hasTag && tagged.Tag() != "latest" || !hasTag && hasDigest {
		return v1.PullIfNotPresent
	}
	return v1.PullAlways
}
