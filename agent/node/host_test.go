package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/node/hostinfo"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/podtest"
)

// The runtime is asked for its cgroup driver three times, but only once if it answers, or cannot tell.
func TestAskDriver(t *testing.T) {
	away := errors.New("away")
	for _, tt := range []struct {
		answers []error
		err     error
		took    time.Duration
	}{
		{[]error{nil}, nil, 0},
		{[]error{cri.ErrNoRuntimeConfig}, cri.ErrNoRuntimeConfig, 0},
		{[]error{away, away, nil}, nil, 4 * time.Second},
		{[]error{away, away, away}, away, 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			asked, began := 0, time.Now()
			driver, err := askDriver(t.Context(), func(context.Context) (string, error) {
				asked++
				return fmt.Sprint("answer ", asked), tt.answers[asked-1]
			})
			if asked != len(tt.answers) || driver != fmt.Sprint("answer ", asked) && err == nil ||
				!errors.Is(err, tt.err) || time.Since(began) != tt.took {
				t.Errorf("%v: after %d answers and %v %q, %v", tt.answers, asked, time.Since(began), driver, err)
			}
		})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := askDriver(ended, func(context.Context) (string, error) { return "", away }); !errors.Is(err, ended.Err()) {
		t.Errorf("after the end of the agent: %v", err)
	}
}

// hostOf is a host with these settings.
func hostOf(t *testing.T, text string, flags ...string) *Host {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	head := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	if err := os.WriteFile(file, []byte(head+text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.FromArgs(append(flags, "--config="+file, "--root-dir="+t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	return &Host{Node: Node{Identity: Identity{Settings: cfg}, Events: noEvents{}}}
}

// A host whose cgroups cannot be opened takes no pods.
func TestPrepareWithoutCgroups(t *testing.T) {
	h := hostOf(t, "cgroupRoot: /numalet-that-is-not-there")
	h.Client = simtest.Connect(t, simtest.Start(t, crisim.Config{CgroupDriver: "cgroupfs"}))
	if err := h.prepare(t.Context(), Links{}); err == nil || !strings.Contains(err.Error(), "numalet-that-is-not-there") {
		t.Errorf("the host is prepared: %v", err)
	}
}

// A pod is lost if it has no cgroup, on a host whose pods have some.
func TestLost(t *testing.T) {
	h, pod := new(Host), podtest.New("p")
	if why := h.Lost(pod); why != "" {
		t.Errorf("without cgroups the pod is lost: %s", why)
	}
	mount := t.TempDir()
	if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), []byte("cpuset cpu memory hugetlb pids\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if h.Tree, err = cgroups.New(cgroups.Config{Mount: mount, HugePages: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if why := h.Lost(pod); !strings.Contains(why, "besteffort/podp") {
		t.Errorf("the pod is lost since %q", why)
	}
}

// What cgroup v2 does for memory follows the settings.
func TestMemoryQoS(t *testing.T) {
	for text, want := range map[string]cgroups.MemoryQoS{
		"featureGates: {MemoryQoS: false}":                                            {},
		"featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.8":                {On: true, Throttle: 0.8},
		"featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation": {On: true, Reserve: true},
		"featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: None":              {On: true},
	} {
		if got := hostOf(t, text).MemoryQoS(); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// reasons records the reasons of the node's events.
type reasons struct {
	Events
	of []string
}

func (r *reasons) OnNode(_, reason, _ string) { r.of = append(r.of, reason) }

// The agent warns of cgroup v1 where that is mounted.
func TestWarnOfCgroupV1(t *testing.T) {
	h, told := hostOf(t, ""), new(reasons)
	h.Events = told
	h.warn(t.Context())
	if slices.Contains(told.of, "CgroupV1") == hostinfo.Unified() {
		t.Errorf("cgroup v2: %t, events: %q", hostinfo.Unified(), told.of)
	}
}
