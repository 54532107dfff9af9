// Package runtimeup follows whether the container runtime is ready for pods, and which images it
// has, for the status of the node.
package runtimeup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
)

const (
	// period is how often the runtime is asked how it is, and imagesEvery after how many times
	// which images it has.
	period, imagesEvery = 5 * time.Second, 6
	// window is how long a runtime that does not answer still counts as up.
	window = 30 * time.Second
	// maxNames is how many names of an image the node's status has.
	maxNames = 5
)

// Config names the runtime to ask.
type Config struct {
	Status func(context.Context) (cri.RuntimeStatus, error)
	// Images lists the runtime's images; nil: not called.
	Images func(context.Context) ([]*runtimeapi.Image, error)
	// MaxImages is nodeStatusMaxImages: the largest count; negative: all.
	MaxImages int
}

// State says how the runtime is, as far as known.
type State struct {
	cri.RuntimeStatus
	Images []v1.ContainerImage
	At     time.Time // when it said so
}

// Follower follows one runtime.
type Follower struct {
	cfg     Config
	changes mailbox.Topic
	state   atomic.Pointer[State]
}

// New returns a Follower that begins with first as the answer of this moment.
func New(c Config, first cri.RuntimeStatus) *Follower {
	f := &Follower{cfg: c}
	f.state.Store(&State{RuntimeStatus: first, At: time.Now()})
	return f
}

// Get returns the present state.
func (f *Follower) Get() State { return *f.state.Load() }

// Changes are published when the runtime became ready or is no longer, and when it has other
// images.
func (f *Follower) Changes() mailbox.Source { return &f.changes }

// NotReady says, in the kubelet's words, why no pods can be started at a time; empty: they can.
func (s State) NotReady(now time.Time) (why []string) {
	if now.Sub(s.At) > window {
		why = append(why, "container runtime is down")
	}
	if !s.Ready.OK {
		why = append(why, "container runtime not ready: "+condition("RuntimeReady", s.Ready))
	}
	if problem := s.NetworkProblem(); problem != "" {
		why = append(why, problem)
	}
	return why
}

// NetworkProblem says, in the kubelet's words, why pods get no network of their own; "": they do.
func (s State) NetworkProblem() string {
	if s.Network.OK {
		return ""
	}
	return "container runtime network not ready: " + condition("NetworkReady", s.Network)
}

func condition(name string, c cri.Condition) string {
	return fmt.Sprintf("%s=%v reason:%s message:%s", name, c.OK, c.Reason, c.Message)
}

// Run asks until ctx ends.
func (f *Follower) Run(ctx context.Context) error {
	tick := time.Tick(period)
	said := f.Get().NotReady(time.Now())
	for n := 0; ; n++ {
		images := f.look(ctx, n%imagesEvery == 0)
		why := f.Get().NotReady(time.Now())
		if images || !slices.Equal(why, said) {
			f.changes.Publish()
		}
		said = why
		if !await.On(ctx, tick) {
			return nil
		}
	}
}

// look asks the runtime, and reports whether it has other images. It does not wait for a runtime that
// hangs beyond the time at which that counts as down.
func (f *Follower) look(ctx context.Context, images bool) (other bool) {
	patience := max(time.Until(f.Get().At.Add(window))+time.Nanosecond, period)
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	now, err := f.cfg.Status(within)
	if err != nil {
		if ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "The container runtime does not say how it is")
		}
		return false
	}
	next := State{RuntimeStatus: now, Images: f.Get().Images, At: time.Now()}
	if images && f.cfg.Images != nil {
		list, err := f.cfg.Images(ctx)
		if err != nil {
			klog.FromContext(ctx).Error(err, "The container runtime does not list its images")
		} else {
			next.Images = largest(list, f.cfg.MaxImages)
		}
	}
	was := f.state.Swap(&next)
	return !slices.EqualFunc(was.Images, next.Images, func(a, b v1.ContainerImage) bool {
		return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
	})
}

// largest lists the largest images, digests before tags.
func largest(list []*runtimeapi.Image, most int) []v1.ContainerImage {
	out := make([]v1.ContainerImage, 0, len(list))
	for _, i := range list {
		names := slices.Concat(i.RepoDigests, i.RepoTags)
		out = append(out, v1.ContainerImage{
			Names: names[:min(len(names), maxNames)], SizeBytes: int64(i.Size),
		})
	}
	slices.SortFunc(out, func(a, b v1.ContainerImage) int {
		return cmp.Or(cmp.Compare(b.SizeBytes, a.SizeBytes), slices.Compare(a.Names, b.Names))
	})
	if most >= 0 && len(out) > most {
		out = out[:most]
	}
	return out
}
