package runtimeup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
)

func ready() cri.RuntimeStatus {
	return cri.RuntimeStatus{Ready: cri.Condition{OK: true}, Network: cri.Condition{OK: true}}
}

// TestStory: a runtime that does not answer, or hangs, counts as there for 30 s; what it says of itself counts
// at the next look; who subscribed is told when the reasons are others, and not else.
func TestStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, failed, images := ready(), error(nil), []*runtimeapi.Image{{Size: 1}}
		hangs := false
		f := New(Config{
			MaxImages: -1,
			Status: func(ctx context.Context) (cri.RuntimeStatus, error) {
				if hangs {
					<-ctx.Done()
					return cri.RuntimeStatus{}, ctx.Err()
				}
				return status, failed
			},
			Images: func(context.Context) ([]*runtimeapi.Image, error) { return images, nil },
		}, ready())
		changed := mailbox.Subscribe(f.Changes())
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		expect := func(after time.Duration, reported bool, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			got := false
			select {
			case <-changed:
				got = true
			default:
			}
			why := strings.Join(f.Get().NotReady(time.Now()), "; ")
			if got != reported || why != want {
				t.Errorf("told %v, want %v; not ready because %q, want %q", got, reported, why, want)
			}
		}
		expect(time.Millisecond, true, "") // the images
		expect(time.Minute, false, "")
		status.Network = cri.Condition{Reason: "NetworkPluginNotReady", Message: "no cni"}
		expect(5*time.Second, true, "container runtime network not ready: NetworkReady=false "+
			"reason:NetworkPluginNotReady message:no cni")
		status.Network.OK, status.Ready = true, cri.Condition{Reason: "r", Message: "m"}
		expect(5*time.Second, true,
			"container runtime not ready: RuntimeReady=false reason:r message:m")
		status, failed = ready(), errors.New("connection refused")
		expect(25*time.Second, false,
			"container runtime not ready: RuntimeReady=false reason:r message:m")
		expect(15*time.Second, true, "container runtime is down; container runtime not ready: "+
			"RuntimeReady=false reason:r message:m")
		failed = nil
		expect(5*time.Second, true, "")
		images = append(images, &runtimeapi.Image{Size: 2})
		expect(30*time.Second, true, "")
		hangs = true
		expect(29*time.Second, false, "")
		expect(2*time.Second, true, "container runtime is down")
		hangs = false
		expect(10*time.Second, true, "")
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestLargest(t *testing.T) {
	list := []*runtimeapi.Image{
		{RepoTags: []string{"small:1"}, Size: 1},
		{RepoDigests: []string{"d1", "d2", "d3"}, RepoTags: []string{"t1", "t2", "t3"}, Size: 9},
		{RepoTags: []string{"b:1"}, Size: 5}, {RepoTags: []string{"a:1"}, Size: 5},
	}
	got := largest(list, 3)
	if len(got) != 3 || !slices.Equal(got[0].Names, []string{"d1", "d2", "d3", "t1", "t2"}) ||
		got[0].SizeBytes != 9 || got[1].Names[0] != "a:1" || got[2].Names[0] != "b:1" {
		t.Errorf("the three largest: %+v", got)
	}
	if n := len(largest(list, -1)); n != 4 {
		t.Errorf("%d images without a limit", n)
	}
}
