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
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/topology/await"
)

// ImageService is what Images needs of the runtime.
type ImageService interface {
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec, verbose bool,
	) (*runtimeapi.ImageStatusResponse, error)
	PullImage(ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
}

// ImagesConfig says how images may be pulled.
type ImagesConfig struct {
	// Serialize pulls one image at a time; it wins over MaxParallel.
	Serialize bool
	// MaxParallel bounds concurrent pulls; 0 does not.
	MaxParallel int
	// QPS and Burst bound how many pulls start per second; QPS 0 does not. Those beyond it wait.
	QPS   float32
	Burst int
	// Logins are those of the node for an image that a pod is to have, in groups: those of the
	// first come first, after the pod's own. It gets the image's whole name, with the registry and
	// without tag and digest. The error does not make the rest useless. nil: the node has none.
	Logins func(ctx context.Context, pod *v1.Pod, image string) ([][]Login, error)
	// Records know with which logins images were pulled; nil: whoever names an image may use it.
	Records PullRecords
	// Pulled is told of every image that was pulled, Asked of every request; nil: nobody is. They
	// must not block.
	Pulled func(Pull)
	Asked  func(Asked)
}

// PullRecords know with which logins images were pulled, and so which pods may use them. They may be
// called from any goroutine.
type PullRecords interface {
	// Pulling is called before the image of that name is pulled, and Pulled, or Failed, afterwards:
	// with the runtime's id of it and whose login was good.
	Pulling(image string) error
	Pulled(image, id string, by Holder)
	Failed(image string)
	// Accessible reports whether a pod may use an image that the runtime has. held are whose logins
	// for it the pod has; it may take long.
	Accessible(image, id string, held func() []Holder) bool
}

// Pull is an image that was pulled for a pod.
type Pull struct {
	Pod  types.UID
	Took time.Duration // with the time that it waited for its turn
	Size uint64        // of the image in bytes
}

// Asked is what became of a request for an image, as far as it came.
type Asked struct {
	Policy v1.PullPolicy
	// Present says whether the runtime had the image, Pull whether it was to be pulled; nil: that
	// was not found out.
	Present, Pull *bool
}

// Images sees to it that images are present before containers are created. Its methods may
// be called from any goroutine. No lock is held during a call to the runtime, and waiting for a
// turn to pull ends with the context.
type Images struct {
	service  ImageService
	turns    chan struct{} // one slot per concurrent pull; nil: no bound
	pace     *pullPace
	failures pullFailures
	cfg      ImagesConfig
}

// NewImages pulls through service.
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
		m.turns = make(chan struct{}, 1)
	case cfg.MaxParallel > 0:
		m.turns = make(chan struct{}, cfg.MaxParallel)
	}
	return m
}

// ImageRequest asks for one container's image.
type ImageRequest struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Sandbox is passed to the runtime with a pull.
	Sandbox *runtimeapi.PodSandboxConfig
	// Restart says that the container ran before.
	Restart bool
	// Pulls, which may be nil, is called before a pull, which may take long.
	Pulls func()
	// Secrets has the pod's image pull secrets, and the names of those that cannot be had. It is
	// called only when the image is to be pulled; nil: there are none.
	Secrets func(ctx context.Context) (secrets []*v1.Secret, missing []string)
	// Report takes the events about the image; type is v1.EventTypeNormal or -Warning. It may be
	// nil.
	Report func(eventType, reason, message string)
}

// uninspected reports and returns that it is not known what image it is.
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

// Ensure makes the container's image present as its pull policy says. An error is a *StartError;
// its RetryAt is set while pulls of this image for this pod are backed off. A failed pull may be
// asked for again soon, and is then refused with ReasonImagePullBackOff until its time has come.
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
	spec := &runtimeapi.ImageSpec{Image: name, Annotations: r.Pod.Annotations}

	if policy != v1.PullAlways {
		ref, err := m.present(ctx, spec, r, &asked)
		if err != nil || ref.Ref != "" {
			return ref, err
		}
	}
	asked.Pull = ptr.To(true)
	return m.pull(ctx, spec, r)
}

// present is the image if the runtime has it; without an error, an empty one asks for a pull. It
// notes in asked what it found.
func (m *Images) present(
	ctx context.Context, spec *runtimeapi.ImageSpec, r ImageRequest, asked *Asked,
) (ImageRef, error) {
	image, err := m.inspect(ctx, spec)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", spec.Image, err)
		return ImageRef{}, r.uninspected(ReasonImageInspect, message, err)
	}
	asked.Present = ptr.To(image != nil)
	if image != nil {
		asked.Pull = ptr.To(!m.accessible(ctx, spec.Image, image.Id, r))
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

// pull pulls unless earlier failures forbid it for now.
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

	pulled := &runtimeapi.ImageSpec{Image: ref, Annotations: spec.Annotations}
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

// turn waits for a free slot to pull; done gives it back.
func (m *Images) turn(ctx context.Context, r ImageRequest) (done func(), err error) {
	if err := m.pace.wait(ctx, r.Restart); err != nil {
		return nil, err
	}
	if m.turns == nil {
		return func() {}, nil
	}
	if !await.Send(ctx, m.turns, struct{}{}) {
		return nil, ctx.Err()
	}
	return func() { <-m.turns }, nil
}

// pullError names the reason of a failed pull. Runtimes put theirs in front of the message.
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

// imageRef names root where the image names no user: a container of which the runtime is told no user
// cannot have a group either.
func imageRef(ref string, image *runtimeapi.Image) ImageRef {
	out := ImageRef{Ref: ref, User: ImageUser{Username: image.GetUsername()}}
	if uid := image.GetUid(); uid != nil || out.User.Username == "" {
		out.User.UID = ptr.To(uid.GetValue())
	}
	return out
}

// taggedName is the image as written, with the tag "latest" if it has neither tag nor digest.
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

// Repository is the full name of an image, with its registry and without its tag and digest.
func Repository(image string) string {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return image
	}
	return named.Name()
}

// PullPolicy is the container's pull policy; the default is Always for the tag "latest",
// written or not, and IfNotPresent for everything else.
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
