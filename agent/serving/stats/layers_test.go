package stats

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/diskusage"
	"github.com/numalet/numalet/cgroups/kernel"
	"github.com/numalet/numalet/cri"
)

// A writable layer is looked at, even if the runtime measured it just now, and then counts for the
// container and the pod; if it cannot be found, the runtime's word stays.
func TestMeasureAnew(t *testing.T) {
	t.Parallel()
	upper := t.TempDir()
	if err := os.WriteFile(filepath.Join(upper, "big"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay := func(dir string) string {
		return fmt.Sprintf("1 0 0:9 / / rw - overlay overlay rw,lowerdir=/l,upperdir=%s,workdir=/w\n", dir)
	}
	for name, tc := range map[string]struct {
		age    time.Duration
		mounts string
		busy   bool // somebody still looks
		anew   bool
	}{
		"a moment ago": {0, overlay(upper), false, true},
		"a while ago":  {9 * time.Second, overlay(upper), false, true},
		"another kind": {9 * time.Second, "1 0 8:1 / / rw - ext4 /dev/sda rw\n", false, false},
		"not the root": {9 * time.Second, "1 0 0:9 / /x rw - overlay overlay rw,upperdir=" + upper + "\n",
			false, false},
		"not there":         {9 * time.Second, overlay(upper + "/none"), false, false},
		"nothing is known":  {9 * time.Second, "", false, false},
		"a look that hangs": {9 * time.Second, overlay(upper), true, false},
	} {
		at := time.Now().Add(-tc.age)
		f := &fake{disk: t.TempDir(), stats: func(context.Context) (cri.Stats, error) {
			return cri.Stats{Pods: []*runtimeapi.PodSandboxStats{
				countedPod("sandbox-u1", at, counted("id-main", at, 5e9, 100)),
			}}, nil
		}}
		c := collector(t, f, t.TempDir(), pod("u1", "web", "main"))
		proc, err := kernel.NewProc(write(t, map[string]string{"9/mountinfo": tc.mounts,
			"meminfo": "MemTotal: 10 kB\nMemFree: 4 kB\n"}))
		if err != nil {
			t.Fatal(err)
		}
		c.cfg.Proc = proc
		if tc.busy {
			c.layers.looking.Store(1)
		}
		c.disks.round(t.Context())
		s, _, err := c.Measure(t.Context(), true)
		if s.Pods == nil {
			t.Fatal(err)
		}
		p := s.Pods[0]
		used, all := *p.Containers[0].Rootfs.UsedBytes, *p.EphemeralStorage.UsedBytes
		if anew := used >= 1<<20; anew != tc.anew || !anew && used != 4096 || anew != (all >= 1<<20) {
			t.Errorf("%s: the container uses %d, the pod %d", name, used, all)
		}
		if got := p.Containers[0].Rootfs.Time.After(at); got != tc.anew {
			t.Errorf("%s: it was measured at %v", name, p.Containers[0].Rootfs.Time)
		}
		before, _, _ := c.Measure(t.Context(), false)
		if *before.Pods[0].Containers[0].Rootfs.UsedBytes != 4096 {
			t.Errorf("%s: others see what was looked at", name)
		}
	}
}

// What was seen of a layer counts if it is more than the runtime's word; if that was not all, the
// container is marked.
func TestLookCutShort(t *testing.T) {
	t.Parallel()
	said := &statsapi.FsStats{UsedBytes: ptr.To[uint64](100), InodesUsed: ptr.To[uint64](1)}
	for name, tc := range map[string]struct {
		said *statsapi.FsStats
		seen diskusage.Usage
		want uint64
	}{
		"all":           {said, diskusage.Usage{Bytes: 150}, 150},
		"less":          {said, diskusage.Usage{Bytes: 50}, 100},
		"less than all": {said, diskusage.Usage{Bytes: 50, Partial: true}, 100},
		"more":          {said, diskusage.Usage{Bytes: 150, Partial: true}, 150},
		"of an unknown": {nil, diskusage.Usage{Bytes: 50, Partial: true}, 50},
	} {
		c := Container{Stats: statsapi.ContainerStats{Rootfs: tc.said}}.seen(tc.seen, metav1.Now())
		if got := *c.Stats.Rootfs.UsedBytes; got != tc.want || c.Partial != tc.seen.Partial {
			t.Errorf("%s: it uses %d, partial: %t; want %d", name, got, c.Partial, tc.want)
		}
	}
}
