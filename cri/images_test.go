package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/podtest"
)

// registry is an image service in memory; the function pull decides the outcome of PullImage.
type registry struct {
	mu      sync.Mutex
	images  map[string]*runtimeapi.Image // by name and by id
	pulls   []string
	asked   []string // the calls with their runtime handlers
	pull    func(ctx context.Context, image string) error
	inspect error
}

func (r *registry) ImageStatus(
	_ context.Context, spec *runtimeapi.ImageSpec, _ bool,
) (*runtimeapi.ImageStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, "status of "+spec.Image+" for "+spec.RuntimeHandler)
	return &runtimeapi.ImageStatusResponse{Image: r.images[spec.Image]}, r.inspect
}

func (r *registry) PullImage(
	ctx context.Context, spec *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig,
	_ *runtimeapi.PodSandboxConfig,
) (string, error) {
	if r.pull != nil {
		if err := r.pull(ctx, spec.Image); err != nil {
			return "", err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, "pull "+spec.Image+" for "+spec.RuntimeHandler)
	r.pulls = append(r.pulls, spec.Image)
	r.addLocked(spec.Image)
	return "sha256:" + spec.Image, nil
}

func (r *registry) addLocked(name string) {
	image := &runtimeapi.Image{
		Id: "sha256:" + name, Size: 1234, Uid: &runtimeapi.Int64Value{Value: 65532},
	}
	if r.images == nil {
		r.images = map[string]*runtimeapi.Image{}
	}
	r.images[name], r.images[image.Id] = image, image
}

// fetch is the outcome of one Ensure, with its events as "type reason message".
type fetch struct {
	events []string
	ref    ImageRef
	err    error
}

func ensure(ctx context.Context, m *Images, uid types.UID, image string, p v1.PullPolicy) fetch {
	var f fetch
	f.ref, f.err = m.Ensure(ctx, ImageRequest{
		Pod:       podtest.New("", podtest.UID(uid)),
		Container: &v1.Container{Name: "c", Image: image, ImagePullPolicy: p},
		Report: func(eventType, reason, message string) {
			f.events = append(f.events, eventType+" "+reason+" "+message)
		},
	})
	return f
}

// reason returns the StartError's reason; "" without an error.
func (f fetch) reason() string {
	var start *StartError
	switch {
	case f.err == nil:
		return ""
	case errors.As(f.err, &start):
		return start.Reason
	default:
		return "not a StartError: " + f.err.Error()
	}
}

func TestEnsure(t *testing.T) {
	pulled := []string{`Normal Pulling Pulling image "img:1"`,
		`Normal Pulled Successfully pulled image "img:1" in 2s (2s including waiting). ` +
			`Image size: 1234 bytes.`}
	present := []string{`Normal Pulled Container image "img:1" already present on machine`}
	const never = `Container image "img:1" is not present with pull policy of Never`
	const badName = `Failed to apply default image tag "Img:1": ` +
		`couldn't parse image name "Img:1": invalid reference format: ` +
		`repository name (library/Img) must be lowercase`
	slow := func(context.Context, string) error { time.Sleep(2 * time.Second); return nil }
	fails := func(text string) func(context.Context, string) error {
		return func(context.Context, string) error { return errors.New(text) }
	}
	tests := []struct {
		name    string
		image   string
		policy  v1.PullPolicy
		here    bool
		service *registry
		reason  string
		message string
		asked   string
		events  []string
	}{
		{"absent", "img:1", "IfNotPresent", false, &registry{pull: slow}, "", "",
			"IfNotPresent false true", pulled},
		{"present", "img:1", "IfNotPresent", true, &registry{}, "", "",
			"IfNotPresent true false", present},
		{"present, always", "img:1", "Always", true, &registry{pull: slow}, "", "",
			"Always unknown true", pulled},
		{"present, never", "img:1", "Never", true, &registry{}, "", "",
			"Never true false", present},
		{"default policy of a tag", "img:1", "", true, &registry{}, "", "",
			"IfNotPresent true false", present},
		{"absent, never", "img:1", "Never", false, &registry{}, "ErrImageNeverPull",
			never, "Never false unknown", []string{"Warning ErrImageNeverPull " + never}},
		{"bad name", "Img:1", "IfNotPresent", false, &registry{}, "InvalidImageName",
			badName, "IfNotPresent unknown unknown", []string{"Warning InspectFailed " + badName}},
		{"inspect fails", "img:1", "Never", false, &registry{inspect: errors.New("no disk")},
			"ImageInspectError", `Failed to inspect image "img:1": no disk`,
			"Never unknown unknown", []string{`Warning InspectFailed Failed to inspect image "img:1": no disk`}},
		{"pull fails", "img:1", "Always", false, &registry{pull: fails("not found")},
			"ErrImagePull", "not found", "Always unknown true", []string{`Normal Pulling Pulling image "img:1"`,
				`Warning Failed Failed to pull image "img:1": not found`}},
		{"registry away", "img:1", "Always", false,
			&registry{pull: fails("rpc error: RegistryUnavailable: 503")}, "RegistryUnavailable",
			"image pull failed for img:1 because the registry is unavailable: 503",
			"Always unknown true",
			[]string{`Normal Pulling Pulling image "img:1"`,
				`Warning Failed Failed to pull image "img:1": ` +
					`rpc error: RegistryUnavailable: 503`}},
		{"signature", "img:1", "Always", false, &registry{pull: fails("SignatureValidationFailed")},
			"SignatureValidationFailed",
			"image pull failed for img:1 because the signature validation failed",
			"Always unknown true",
			[]string{`Normal Pulling Pulling image "img:1"`,
				`Warning Failed Failed to pull image "img:1": SignatureValidationFailed`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if tt.here {
					tt.service.addLocked(tt.image)
				}
				var asked []string
				images := NewImages(tt.service, ImagesConfig{Asked: func(a Asked) {
					asked = append(asked, a.text())
				}})
				f := ensure(t.Context(), images, "u", tt.image, tt.policy)
				if diff := cmp.Diff([]string{tt.asked}, asked); diff != "" {
					t.Error("asked -want +got:\n", diff)
				}
				if f.reason() != tt.reason {
					t.Fatalf("got %v, want reason %q", f.err, tt.reason)
				}
				if diff := cmp.Diff(tt.events, f.events); diff != "" {
					t.Error("events -want +got:\n", diff)
				}
				var start *StartError
				if errors.As(f.err, &start) {
					if start.Message != tt.message {
						t.Errorf("got message %q, want %q", start.Message, tt.message)
					}
					return
				}
				want := ImageRef{Ref: "sha256:img:1", User: ImageUser{UID: ptr.To[int64](65532)}}
				if diff := cmp.Diff(want, f.ref); diff != "" {
					t.Error("ref -want +got:\n", diff)
				}
			})
		})
	}
}

func TestImageUser(t *testing.T) {
	for _, tt := range []struct {
		image *runtimeapi.Image
		want  ImageUser
	}{
		{&runtimeapi.Image{}, ImageUser{UID: ptr.To[int64](0)}},
		{&runtimeapi.Image{Username: "www"}, ImageUser{Username: "www"}},
		{&runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: 7}}, ImageUser{UID: ptr.To[int64](7)}},
	} {
		if diff := cmp.Diff(tt.want, imageRef("r", tt.image).User); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.image, diff)
		}
	}
}

// text returns the policy, whether the image was there, and whether a pull was needed.
func (a Asked) text() string {
	out := string(a.Policy)
	for _, b := range []*bool{a.Present, a.Pull} {
		if b == nil {
			out += " unknown"
		} else {
			out += fmt.Sprint(" ", *b)
		}
	}
	return out
}

// The delays are the kubelet's; other pods and images are not delayed.
func TestPullBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("boom")
		service := &registry{pull: func(context.Context, string) error { return broken }}
		m := NewImages(service, ImagesConfig{})
		try := func(uid types.UID, image string) fetch {
			return ensure(t.Context(), m, uid, image, v1.PullIfNotPresent)
		}
		for _, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			delay *= time.Second
			f := try("u", "img:1")
			var start *StartError
			if !errors.As(f.err, &start) || start.Reason != ReasonImagePull {
				t.Fatalf("before waiting %v: got %v", delay, f.err)
			}
			if left := time.Until(start.RetryAt); left != pullFailureShown {
				t.Errorf("the back-off replaces the failure in %v", left)
			}
			time.Sleep(delay - time.Nanosecond)
			f = try("u", "img:1")
			if !errors.As(f.err, &start) || start.Reason != ReasonImagePullBackOff {
				t.Fatalf("just before %v: got %v", delay, f.err)
			}
			const backOff = `Back-off pulling image "img:1"`
			if start.Message != backOff+": ErrImagePull: boom" || !errors.Is(f.err, broken) {
				t.Errorf("got message %q", start.Message)
			}
			if !slices.Equal(f.events, []string{"Normal BackOff " + backOff}) {
				t.Errorf("got events %q", f.events)
			}
			if left := time.Until(start.RetryAt); left != time.Nanosecond {
				t.Errorf("RetryAt is %v away", left)
			}
			if f := try("other", "img:1"); delay == 10*time.Second &&
				f.reason() != ReasonImagePull {
				t.Errorf("another pod: got %v", f.err)
			}
			time.Sleep(time.Nanosecond)
		}
		time.Sleep(10*time.Minute + time.Second)
		if f := try("u", "img:2"); f.reason() != ReasonImagePull {
			t.Errorf("another image: got %v", f.err)
		}
		if n := len(m.failures.failed); n != 1 {
			t.Errorf("%d failures are remembered, want the last one only", n)
		}
	})
}

func TestPullSuccessEndsBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := func(context.Context, string) error { return errors.New("boom") }
		service := &registry{pull: fails}
		var pulled []Pull
		m := NewImages(service, ImagesConfig{Pulled: func(p Pull) { pulled = append(pulled, p) }})
		ensure(t.Context(), m, "u", "img:1", v1.PullAlways)
		time.Sleep(10 * time.Second)
		service.pull = nil
		if f := ensure(t.Context(), m, "u", "img:1", v1.PullAlways); f.err != nil {
			t.Fatal(f.err)
		}
		if len(m.failures.failed) != 0 {
			t.Error("the failure is still remembered")
		}
		if len(pulled) != 1 || pulled[0].Pod != "u" {
			t.Errorf("told of %+v, want the one that succeeded", pulled)
		}
	})
}

// busiest runs five pulls of a second each. It returns the highest number of concurrent pulls, and
// the total time.
func busiest(t *testing.T, cfg ImagesConfig) (most int, took time.Duration) {
	var mu sync.Mutex
	now := 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		now += n
		most = max(most, now)
	}
	m := NewImages(&registry{pull: func(context.Context, string) error {
		count(1)
		defer count(-1)
		time.Sleep(time.Second)
		return nil
	}}, cfg)
	start := time.Now()
	var group sync.WaitGroup
	for i := range 5 {
		group.Go(func() {
			image := fmt.Sprintf("img:%d", i)
			if f := ensure(t.Context(), m, "u", image, v1.PullAlways); f.err != nil {
				t.Error(f.err)
			}
		})
	}
	group.Wait()
	return most, time.Since(start)
}

func TestParallelPulls(t *testing.T) {
	for _, tt := range []struct {
		cfg  ImagesConfig
		most int
		took time.Duration
	}{
		{ImagesConfig{}, 5, time.Second},
		{ImagesConfig{MaxParallel: 2}, 2, 3 * time.Second},
		{ImagesConfig{Serialize: true, MaxParallel: 2}, 1, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			if most, took := busiest(t, tt.cfg); most != tt.most || took != tt.took {
				t.Errorf("%+v: %d at once, %v in all; want %d, %v",
					tt.cfg, most, took, tt.most, tt.took)
			}
		})
	}
}

// A runtime that never answers delays neither a caller that gives up nor callers whose image is
// present.
func TestHungPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &registry{pull: func(ctx context.Context, image string) error {
			if image == "hangs:1" {
				<-ctx.Done()
			}
			return ctx.Err()
		}}
		service.addLocked("here:1")
		m := NewImages(service, ImagesConfig{Serialize: true})
		hung, stopHung := context.WithCancel(t.Context())
		queued, stopQueued := context.WithCancel(t.Context())
		results := make(chan fetch)
		go func() { results <- ensure(hung, m, "u", "hangs:1", v1.PullAlways) }()
		synctest.Wait()
		go func() { results <- ensure(queued, m, "u", "other:1", v1.PullAlways) }()
		synctest.Wait()

		if f := ensure(t.Context(), m, "u", "here:1", v1.PullIfNotPresent); f.err != nil {
			t.Errorf("present image: %v", f.err)
		}
		stopQueued()
		if f := <-results; !errors.Is(f.err, context.Canceled) {
			t.Errorf("queued: got %v", f.err)
		}
		stopHung()
		if f := <-results; !errors.Is(f.err, context.Canceled) {
			t.Errorf("hung: got %v", f.err)
		}
		if len(m.failures.failed) != 0 {
			t.Error("giving up counts as a failure of the image")
		}
		if f := ensure(t.Context(), m, "u", "other:1", v1.PullAlways); f.err != nil {
			t.Errorf("after both gave up: %v", f.err)
		}
	})
}

// A pull beyond the rate waits until its pod gives up. That is no failure of the image.
func TestPullQPS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewImages(&registry{}, ImagesConfig{QPS: 0.01, Burst: 2})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range 3 {
			f := ensure(ctx, m, "u", fmt.Sprintf("img:%d", i), v1.PullAlways)
			if waits := i == 2; waits != errors.Is(f.err, context.DeadlineExceeded) {
				t.Errorf("pull %d: %v", i, f.err)
			}
		}
		if len(m.failures.failed) != 0 {
			t.Error("giving up counts as a failure of the image")
		}
		time.Sleep(time.Hour) // until the timer ends
	})
}

func TestPullPolicyAndTag(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("a", 64)
	tests := []struct {
		image  string
		policy v1.PullPolicy
		tagged string
	}{
		{"busybox", v1.PullAlways, "busybox:latest"},
		{"busybox:latest", v1.PullAlways, "busybox:latest"},
		{"busybox:1", v1.PullIfNotPresent, "busybox:1"},
		{"localhost:5000/busybox", v1.PullAlways, "localhost:5000/busybox:latest"},
		{"localhost:5000/busybox:1", v1.PullIfNotPresent, "localhost:5000/busybox:1"},
		{"busybox" + digest, v1.PullIfNotPresent, "busybox" + digest},
		{"busybox:latest" + digest, v1.PullAlways, "busybox:latest" + digest},
		{"busybox:1" + digest, v1.PullIfNotPresent, "busybox:1" + digest},
	}
	for _, tt := range tests {
		if got := PullPolicy(&v1.Container{Image: tt.image}); got != tt.policy {
			t.Errorf("%s: got policy %s, want %s", tt.image, got, tt.policy)
		}
		if got, err := taggedName(tt.image); err != nil || got != tt.tagged {
			t.Errorf("%s: got %s, %v; want %s", tt.image, got, err, tt.tagged)
		}
	}
	never := &v1.Container{Image: "busybox", ImagePullPolicy: v1.PullNever}
	if got := PullPolicy(never); got != v1.PullNever {
		t.Errorf("got %s, want what the spec says", got)
	}
}

// TestImagesForHandlers: an image is looked for, pulled and looked at for the runtime handler.
func TestImagesForHandlers(t *testing.T) {
	for _, handler := range []string{"", "runsc"} {
		r := &registry{}
		_, err := NewImages(r, ImagesConfig{}).Ensure(t.Context(), ImageRequest{
			Pod: &v1.Pod{}, Container: &v1.Container{Name: "c", Image: "img:1",
				ImagePullPolicy: v1.PullIfNotPresent},
			Handler: handler, Report: func(string, string, string) {},
		})
		want := []string{"status of img:1 for " + handler, "pull img:1 for " + handler,
			"status of sha256:img:1 for " + handler}
		if !slices.Equal(r.asked, want) || err != nil {
			t.Errorf("the runtime was asked\n%q, want\n%q (%v)", r.asked, want, err)
		}
	}
}
