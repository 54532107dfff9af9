package localstorage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/internal/podtest"
)

// kept is a node with pods whose emptyDir may use 10 bytes.
type kept struct {
	*Keeper
	start time.Time
	pods  []*v1.Pod
	uses  map[types.UID]uint64
	err   error
	asked int
	said  []string
}

func newKept(pods ...string) *kept {
	k := &kept{start: time.Now(), uses: map[types.UID]uint64{}}
	for _, name := range pods {
		pod := with("main", empty("cache", "", "10"))
		pod.Name, pod.UID = name, types.UID(name)
		k.pods = append(k.pods, pod)
	}
	k.Keeper = NewKeeper(KeeperConfig{
		Pods: func() []*v1.Pod { return k.pods },
		Used: func(context.Context, time.Duration) (s statsapi.Summary, err error) {
			k.asked++
			for uid, n := range k.uses {
				p := uses(n, 0, 0, n)
				p.PodRef.UID = string(uid)
				s.Pods = append(s.Pods, p)
			}
			return s, k.err
		},
		Apart: func(statsapi.Summary) bool { return false },
		End: func(pod *v1.Pod, e Excess) {
			k.said = append(k.said, fmt.Sprintf("%v %s %s", time.Since(k.start).Round(time.Second), pod.Name, e.Signal))
		},
	})
	return k
}

// TestKeeper: pods that use more than they may are ended at the next look, all of them; critical
// ones and those of which nothing is known are not.
func TestKeeper(t *testing.T) {
	for name, tc := range map[string]struct {
		play func(k *kept)
		want string
	}{
		"enough": {func(k *kept) { k.uses["a"] = 10 }, ""},
		"two at once": {func(k *kept) {
			time.Sleep(15 * time.Second)
			k.uses["a"], k.uses["b"] = 11, 12
			time.Sleep(10 * time.Second)
			k.pods = k.pods[2:]
		}, "20s a emptydirfs.limit|20s b emptydirfs.limit"},
		"one that is critical": {func(k *kept) {
			podtest.Annotations("kubernetes.io/config.source", "file")(k.pods[0])
			k.uses["a"] = 11
		}, ""},
		"one that others are ending": {func(k *kept) {
			k.pods, k.uses["a"] = k.pods[1:], 11
		}, ""},
		"what was measured last counts": {func(k *kept) {
			k.uses["a"], k.err = 11, errors.New("the runtime is gone")
			time.Sleep(time.Second)
			k.pods = nil
		}, "0s a emptydirfs.limit"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKept("a", "b")
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() {
					time.Sleep(time.Millisecond) // after what play does first
					done <- k.Run(ctx)
				}()
				tc.play(k)
				time.Sleep(20 * time.Second)
				cancel()
				<-done
				got := k.said
				if len(got) == 2 && got[0] > got[1] {
					got[0], got[1] = got[1], got[0]
				}
				if text := strings.Join(got, "|"); text != tc.want {
					t.Errorf("got  %s\nwant %s", text, tc.want)
				}
			})
		})
	}
}

// TestKeeperAsksForLimits: nothing is asked for pods without limits.
func TestKeeperAsksForLimits(t *testing.T) {
	k := newKept("a")
	k.pods[0].Spec.Volumes = nil
	if k.look(t.Context()); k.asked != 0 {
		t.Errorf("it asked %d times", k.asked)
	}
}
