package upkeep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/node/neighbours"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/resources"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/agent/upkeep/gc"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
)

// hostOf is a host with these flags.
func hostOf(t *testing.T, flags ...string) *node.Host {
	t.Helper()
	cfg, err := config.FromArgs(append(flags, "--topology-from=fixture:laptop", "--root-dir="+t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	hardware, err := machine.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &node.Host{Node: node.Node{Identity: node.Identity{Settings: cfg, Hardware: hardware}}}
}

// What is short says what is removed that no pod needs, and whether something was.
func TestReclaim(t *testing.T) {
	const failing = "b"
	for _, tt := range []struct {
		name    string
		what    eviction.Reclaim
		dead    int
		images  []string
		some    bool
		removed []string
		fails   bool
	}{
		{"nothing is there", eviction.Reclaim{Containers: true, Images: true}, 0, nil, false, nil, false},
		{"both", eviction.Reclaim{Containers: true, Images: true}, 1, []string{"a"}, true, []string{"container 1", "image a"}, false},
		{"containers", eviction.Reclaim{Containers: true}, 1, []string{"a"}, true, []string{"container 1"}, false},
		{"images", eviction.Reclaim{Images: true}, 1, []string{"a"}, true, []string{"image a"}, false},
		{"an image stays", eviction.Reclaim{Containers: true, Images: true}, 0, []string{failing}, false, nil, true},
	} {
		var removed []string
		u := &Upkeep{containers: gc.Containers{
			Running: func() []cri.Pod {
				pod := cri.Pod{UID: "p"}
				for i := range tt.dead + 1 { // the newest stays
					pod.Containers = append(pod.Containers, cri.Container{ID: string(rune('0' + i)), Name: "main",
						State: cri.ContainerExited})
				}
				return []cri.Pod{pod}
			},
			Pod: func(types.UID) (*v1.Pod, bool) { return nil, false },
			Remove: func(_ context.Context, _ cri.Pod, id string) error {
				removed = append(removed, "container "+id)
				return nil
			},
		}}
		var err error
		u.images, err = gc.NewImages(gc.ImagesConfig{
			List: func(context.Context) (all []gc.Image, err error) {
				for _, id := range tt.images {
					all = append(all, gc.Image{ID: id, Names: []string{id}, Size: 1})
				}
				return all, nil
			},
			InUse: func(context.Context) (sets.Set[string], error) { return nil, nil },
			Disk:  func(context.Context) (gc.Disk, error) { return gc.Disk{Capacity: 1}, nil },
			Tell:  func(string, string, string) {},
			Left:  func([]gc.Image, time.Time) {},
			Remove: func(_ context.Context, i gc.Image) error {
				if i.ID == failing {
					return errors.New("it is busy")
				}
				removed = append(removed, "image "+i.ID)
				return nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		some, err := u.Reclaim(t.Context(), tt.what)
		if some != tt.some || (err != nil) != tt.fails || !slices.Equal(removed, tt.removed) {
			t.Errorf("%s: removed are %q, some: %t, %v", tt.name, removed, some, err)
		}
	}
}

// Cgroups without a pod are searched on a host whose pods have cgroups.
func TestRemains(t *testing.T) {
	u := &Upkeep{c: Config{Host: hostOf(t)}}
	cgroupsLeft := func() []types.UID {
		t.Helper()
		left, err := u.remains()["cgroups"]()
		if err != nil {
			t.Error(err)
		}
		return left
	}
	if left := cgroupsLeft(); left != nil {
		t.Errorf("without cgroups are left %q", left)
	}
	mount := t.TempDir()
	if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpuset cpu memory hugetlb pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(mount, "kubepods", "besteffort", "podleft"), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if u.c.Tree, err = cgroups.New(cgroups.Config{Mount: mount, HugePages: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if u.c.Others, err = neighbours.New(neighbours.Config{Root: u.c.Settings.RootDir}); err != nil {
		t.Fatal(err)
	}
	if left := cgroupsLeft(); !slices.Equal(left, []types.UID{"left"}) {
		t.Errorf("cgroups are left of %q", left)
	}
}

// gauged are the CPUs and pods that gauges show.
type gauged struct {
	exclusive, available cpuset.CPUSet
	placed               []allocation.Pod
}

func (g *gauged) CPUs(_ *topology.Machine, exclusive, available cpuset.CPUSet) {
	g.exclusive, g.available = exclusive, available
}

func (g *gauged) Placed(all []allocation.Pod) { g.placed = all }

func (*gauged) Pods(_, _ []*v1.Pod) {}

// The gauges show CPUs only under the static policy, as the kubelet's do: those that containers have for
// themselves, and those that others may still get.
func TestGauges(t *testing.T) {
	assigned := store.Fixed(allocation.State{Pods: map[types.UID]allocation.Pod{"p": {UID: "p",
		Containers: map[string]allocation.Container{"main": {allocation.CPUs(cpuset.New(1, 2))}}}}})
	for _, policy := range []string{"static", "none"} {
		h := hostOf(t, "--cpu-manager-policy="+policy, "--reserved-cpus=0")
		all := h.Machine().Online()
		shown := new(gauged)
		u := &Upkeep{c: Config{
			Host: h, Placement: &placement.Placement{Config: placement.Config{Host: h, Store: assigned}},
			Resources: placement.Resources{Loop: resources.New(resources.Config{Hardware: h.Hardware.Get, State: assigned.State})},
			Pods:      &pods.Pods{Statuses: &pods.Statuses{Store: podstatus.New(podstatus.Config{})}},
			Gauges:    shown,
		}}
		if err := u.gauges(t.Context()); err != nil {
			t.Fatal(err)
		}
		exclusive, available := "", ""
		if policy == "static" {
			exclusive, available = "1-2", all.Difference(cpuset.New(0, 1, 2)).String()
		}
		if shown.exclusive.String() != exclusive || shown.available.String() != available {
			t.Errorf("policy %s: exclusive are %s, available %s", policy, shown.exclusive, shown.available)
		}
		if len(shown.placed) != 1 {
			t.Errorf("policy %s: placed are %+v", policy, shown.placed)
		}
	}
}

// told are reasons of the node's events.
type told struct {
	node.Events
	of []string
}

func (e *told) OnNode(_, reason, _ string) { e.of = append(e.of, reason) }

// What cannot be removed is an event of the node, but not when the agent ends.
func TestGarbage(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		ctx  context.Context
		err  error
		want []string
	}{
		{t.Context(), nil, nil},
		{t.Context(), errors.New("it is busy"), []string{"ContainerGCFailed"}},
		{ended, ended.Err(), nil},
	} {
		u, events := &Upkeep{c: Config{Host: hostOf(t)}}, new(told)
		u.c.Events = events
		err := u.garbage("x", func(context.Context) error { return tt.err }).Run(tt.ctx)
		if !errors.Is(err, tt.err) || !slices.Equal(events.of, tt.want) {
			t.Errorf("%v: %v, events are %q, want %q", tt.err, err, events.of, tt.want)
		}
	}
}

// pulls are not counted.
type pulls struct{}

func (pulls) Pulled(cri.Pull) {}

func (pulls) Asked(cri.Asked) {}

// Who may use an image is written down when it is pulled, with the gate.
func TestImageRecords(t *testing.T) {
	for gate, want := range map[string]int{"true": 1, "false": 0} {
		h := hostOf(t, "--feature-gates=KubeletEnsureSecretPulledImages="+gate)
		h.Client = simtest.Connect(t, simtest.Start(t, crisim.Config{}))
		images, err := OpenImages(t.Context(), h, nil, pulls{})
		if err != nil {
			t.Fatal(err)
		}
		pod := podtest.New("p", podtest.Containers("main"))
		pod.Spec.Containers[0].Image = "registry.local/app:1"
		if _, err := images.Ensure(t.Context(), cri.ImageRequest{Pod: pod, Container: &pod.Spec.Containers[0]}); err != nil {
			t.Fatal(err)
		}
		written, err := filepath.Glob(filepath.Join(h.Settings.RootDir, "image_manager", "pulled", "*"))
		if err != nil || len(written) != want {
			t.Errorf("the gate is %s: written are %q, %v", gate, written, err)
		}
	}
}
