package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
)

func TestParse(t *testing.T) {
	got, err := Parse(&kubeletv1beta1.KubeletConfiguration{
		EnforceNodeAllocatable: []string{"pods"},
		EvictionHard: map[string]string{"pid.available": "5%", "nodefs.available": "10%",
			"imagefs.inodesFree": "0%", "memory.available": "100Mi", "containerfs.available": "50%",
			"allocatableMemory.available": "50Mi"},
		EvictionSoft: map[string]string{"memory.available": "1Gi",
			"containerfs.inodesFree": "50%"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "90s"},
		EvictionMinimumReclaim:  map[string]string{"memory.available": "50Mi", "pid.available": "1%"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, g := range got {
		lines = append(lines, fmt.Sprintf("%s %d+%d soft=%v %v", g.Signal, g.Value.Of(1000),
			g.Reclaim.Of(1000), g.Soft, g.Grace))
	}
	want := `memory.available 104857600+52428800 soft=false 0s
memory.available 1073741824+52428800 soft=true 1m30s
allocatableMemory.available 52428800+0 soft=false 0s
allocatableMemory.available 104857600+52428800 soft=false 0s
nodefs.available 100+0 soft=false 0s
containerfs.available 100+0 soft=false 0s
pid.available 50+9 soft=false 0s`
	if text := strings.Join(lines, "\n"); text != want {
		t.Errorf("thresholds are\n%s\nwant\n%s", text, want)
	}
	for name, k := range map[string]kubeletv1beta1.KubeletConfiguration{
		"hard": {EvictionHard: map[string]string{"memory.available": "x"}},
		"soft": {EvictionSoft: map[string]string{"memory.available": "1Gi"}},
		"reclaim": {EvictionHard: map[string]string{"memory.available": "1Gi"},
			EvictionMinimumReclaim: map[string]string{"memory.available": "-1"}},
	} {
		if _, err := Parse(&k); err == nil || !strings.Contains(err.Error(), "memory.available") {
			t.Errorf("%s: the error is %v; want one that names the signal", name, err)
		}
	}
}

func fs(capacity, available, inodes, free uint64) *statsapi.FsStats {
	return &statsapi.FsStats{CapacityBytes: &capacity, AvailableBytes: &available,
		Inodes: &inodes, InodesFree: &free}
}

func memory(used, available uint64) *statsapi.MemoryStats {
	return &statsapi.MemoryStats{WorkingSetBytes: &used, AvailableBytes: &available}
}

func TestRead(t *testing.T) {
	var s statsapi.Summary
	if got := Read(s, Host{Memory: 1000, PodsCapacity: 500}); len(got) != 0 {
		t.Errorf("of nothing it reads %v", got)
	}
	s.Node = statsapi.NodeStats{
		Memory: memory(300, 700), Fs: fs(100, 40, 1000, 999),
		Runtime: &statsapi.RuntimeStats{ImageFs: fs(200, 50, 0, 0)},
		Rlimit:  &statsapi.RlimitStats{MaxPID: ptr.To[int64](4000), NumOfRunningProcesses: ptr.To[int64](4001)},
		SystemContainers: []statsapi.ContainerStats{
			{Name: "kubelet", Memory: memory(1, 1)}, {Name: "pods", Memory: memory(200, 0)}},
	}
	for name, tc := range map[string]struct {
		host Host
		want string
	}{
		"all": {Host{Memory: 1000, PodsCapacity: 900},
			"map[allocatableMemory.available:{700 900} imagefs.available:{50 200} memory.available:{700 1000} " +
				"nodefs.available:{40 100} nodefs.inodesFree:{999 1000} pid.available:{0 4000}]"},
		"memory that cannot be read": {Host{},
			"map[imagefs.available:{50 200} nodefs.available:{40 100} nodefs.inodesFree:{999 1000} " +
				"pid.available:{0 4000}]"},
	} {
		if got := fmt.Sprint(Read(s, tc.host)); got != tc.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, tc.want)
		}
	}
}

// Writable layers have amounts of their own unless they are where images are, and images elsewhere than
// the node's files: then the thresholds of imagefs hold, and an explanation has no others.
func TestReadLayers(t *testing.T) {
	node, images, layers := fs(100, 40, 1000, 999), fs(200, 50, 500, 5), fs(300, 30, 700, 7)
	for name, tc := range map[string]struct {
		images, layers *statsapi.FsStats
		want           bool
	}{
		"all are one":          {node, node, true},
		"images apart":         {images, node, true},
		"both apart":           {images, images, false},
		"three":                {images, layers, true},
		"layers apart":         {node, layers, true},
		"layers are not known": {images, nil, false},
		"no images are known":  {nil, layers, true},
	} {
		r := Read(statsapi.Summary{Node: statsapi.NodeStats{Fs: node,
			Runtime: &statsapi.RuntimeStats{ImageFs: tc.images, ContainerFs: tc.layers}}}, Host{})
		got, known := r[ContainerFSAvailable]
		if known != tc.want || known && uint64(got.Available) != *tc.layers.AvailableBytes {
			t.Errorf("%s: of layers %v is read: %t", name, got, known)
		}
		of := Threshold{Signal: ContainerFSInodesFree}
		if of.withImages(r) == tc.want || (Threshold{Signal: PIDAvailable}).withImages(r) {
			t.Errorf("%s: a threshold of layers is left out: %t", name, of.withImages(r))
		}
		if delete(r, ImageFSInodesFree); of.withImages(r) {
			t.Errorf("%s: a threshold of layers is left out, and that of images cannot be read", name)
		}
	}
}

// TestStep plays amounts of memory, ten seconds apart, against a hard threshold of 100 with 50 to
// reclaim and a soft one of 200 with 20 s of grace. Conditions hold for 30 s.
func TestStep(t *testing.T) {
	thresholds, err := Parse(&kubeletv1beta1.KubeletConfiguration{
		EvictionHard:            map[string]string{"memory.available": "100"},
		EvictionMinimumReclaim:  map[string]string{"memory.available": "50"},
		EvictionSoft:            map[string]string{"memory.available": "200"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "20s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	const unread = -1
	for name, tc := range map[string]struct {
		available []int64
		want      string // per look: - nothing, p pressure, s and h: a pod is to go for the soft or hard one
	}{
		"enough":                            {[]int64{300, 200, 250}, "---"},
		"hard at once":                      {[]int64{300, 99}, "-h"},
		"soft after its grace":              {[]int64{150, 150, 150, 150}, "ppss"},
		"soft begins anew":                  {[]int64{150, 300, 150, 150, 150}, "ppppS"},
		"until so much is free":             {[]int64{99, 149, 160}, "hhs"},
		"pressure goes after the last met":  {[]int64{199, 300, 300, 300, 300}, "ppp--"},
		"what cannot be read changes less":  {[]int64{99, unread, 149}, "hph"},
		"unread for longer than conditions": {[]int64{99, unread, unread, unread, unread}, "hpp--"},
	} {
		var s state
		got, now := "", time.Unix(0, 0)
		for _, amount := range tc.available {
			r := Readings{}
			if amount != unread {
				r[MemoryAvailable] = Reading{amount, 1000}
			}
			var v verdict
			s, v = s.step(r, rules{thresholds, 30 * time.Second}, now)
			switch {
			case v.relieve != nil && v.relieve.Soft:
				got += "s"
			case v.relieve != nil:
				got += "h"
			case len(v.pressure) > 0:
				got += "p"
			default:
				got += "-"
			}
			now = now.Add(10 * time.Second)
		}
		if got != strings.ToLower(tc.want) {
			t.Errorf("%s: %v leads to %s; want %s", name, tc.available, got, strings.ToLower(tc.want))
		}
	}
}
