package node

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/eviction/wake"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/internal/podtest"
)

// What ends pods follows the settings: without thresholds nothing is short, and limits of local storage are kept
// all the same.
func TestEvictionsFollowSettings(t *testing.T) {
	const evictions, kernel, limits = "evictions", "memory as the kernel tells", "limits of local storage"
	for _, tt := range []struct {
		flags []string
		want  []string
	}{
		{nil, []string{evictions, kernel, limits}},
		{[]string{"--eviction-hard=memory.available<0%,nodefs.available<0%,imagefs.available<0%," +
			"nodefs.inodesFree<0%,imagefs.inodesFree<0%"}, []string{limits}},
	} {
		e := evictionsOf(t, &Host{Node: Node{Events: noEvents{}}}, EvictionsConfig{
			Active: func() []*v1.Pod { return nil },
		}, tt.flags...)
		var names []string
		for _, p := range e.Parts() {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, tt.want) {
			t.Errorf("%q: there run %q, want %q", tt.flags, names, tt.want)
		}
		if short := slices.Contains(names, evictions); short {
			continue
		}
		if got := e.Shortage(t.Context()); got.Node != "n" || e.ShortOf() != nil {
			t.Errorf("without thresholds the node is short of %+v, %q", got, e.ShortOf())
		}
	}
}

// evictionsOf makes those of a host that is otherwise as given.
func evictionsOf(t *testing.T, h *Host, c EvictionsConfig, flags ...string) *Evictions {
	t.Helper()
	cfg, err := config.FromArgs(append(flags, "--topology-from=fixture:laptop", "--root-dir="+t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	hardware, err := machine.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.Identity, h.Pressure = Identity{Settings: cfg, Name: "n", Hardware: hardware}, new(eviction.Pressure)
	c.Meter = func(*wake.Kernel) eviction.Meter { return eviction.Meter{} }
	e, err := NewEvictions(h, c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A pod that uses more of the disk than it may ends once, with an event.
func TestLimitsEndPods(t *testing.T) {
	var told annotated
	var ended []eviction.Eviction
	pod := podtest.New("p", podtest.Spec(v1.PodSpec{Volumes: []v1.Volume{{Name: "cache", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(10, resource.BinarySI)}}}}}))
	e := evictionsOf(t, &Host{Node: Node{Events: &told}}, EvictionsConfig{
		Active: func() []*v1.Pod { return []*v1.Pod{pod} },
		Used: func(context.Context, time.Duration) (statsapi.Summary, error) {
			return statsapi.Summary{Pods: []statsapi.PodStats{{PodRef: statsapi.PodReference{UID: "p"},
				VolumeStats: []statsapi.VolumeStats{{Name: "cache", FsStats: statsapi.FsStats{UsedBytes: ptr.To(uint64(11))}}}}}}, nil
		},
		End: func(one eviction.Eviction) { ended = append(ended, one) },
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, part := range e.Parts() {
			if part.Name == "limits of local storage" {
				if err := part.Run(ctx); err != nil {
					t.Error(err)
				}
			}
		}
	})
	if len(ended) != 1 || ended[0].Pod != pod || !ended[0].OwnLimit || ended[0].Grace != time.Second {
		t.Errorf("ended are %+v", ended)
	}
	if !slices.Equal(told.of, []string{"p Evicted"}) {
		t.Errorf("events are %q", told.of)
	}
}

// annotated are events of pods.
type annotated struct {
	Events
	of []string
}

func (a *annotated) Annotated(pod *v1.Pod, _ map[string]string, _, reason, _ string) {
	a.of = append(a.of, pod.Name+" "+reason)
}

// noEvents is a recorder that nothing is told.
type noEvents struct{ Events }
