package eviction

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/storage/localstorage"
	"github.com/numalet/numalet/internal/podtest"
)

// TestManyNewFiles: a pod that has just made 200,000 files goes first when a disk has few inodes left,
// although it had the fewest when its volumes were measured last. Meter and files are real; the walk
// takes none of the bubble's time.
func TestManyNewFiles(t *testing.T) {
	root := inMemory(t)
	fresh, old := makeFiles(t, root, "fresh", 1), makeFiles(t, root, "old", 1000)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, kubeletv1beta1.KubeletConfiguration{
			EvictionHard: map[string]string{"nodefs.inodesFree": "150k"}})
		w.add(fresh, 0)
		w.add(old, 0)
		free := uint64(300_000)
		meter := localstorage.New(localstorage.Config{Root: root, LogsDir: filepath.Join(root, "logs"),
			Period: time.Minute, Pods: func() []*v1.Pod { return []*v1.Pod{fresh, old} }})
		w.cfg.Anew = func(uids []types.UID) (soon, late []types.UID) {
			w.mu.Lock()
			w.say(fmt.Sprintf("measure %v", uids)) // who goes first by the older measurement is first
			w.mu.Unlock()
			return meter.Anew(uids)
		}
		w.cfg.Measure = func(context.Context, Signal) (s Measured, err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			s.At, s.Pods = time.Now(), podsOf(meter.Get())
			s.Node.Fs = fs(1<<40, 1<<40, 1_000_000, free)
			return s, nil
		}
		w.cfg.Glance = func(ctx context.Context) (statsapi.Summary, Host, error) {
			s, err := w.cfg.Measure(ctx, "")
			return s.Summary, s.Host, err
		}
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		ended.Go(func() { _ = meter.Run(ctx) })
		ended.Go(func() { _ = w.Run(ctx) })
		time.Sleep(30500 * time.Millisecond)
		makeFiles(t, root, "fresh", 200_000)
		w.mu.Lock()
		free -= 200_000
		w.mu.Unlock()
		time.Sleep(5 * time.Second)
		stop()
		ended.Wait()
		got := strings.Join(w.news(), ", ")
		if want := "31s measure [old fresh], 31s Attempting to reclaim inodes, 31s evict fresh in 1s"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// inMemory returns a directory in memory, if the machine has one that all may use: files are made and
// removed there some times faster.
func inMemory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "numalet-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// makeFiles makes so many empty files in the only volume of a pod, which it returns.
func makeFiles(t *testing.T, root, pod string, many int) *v1.Pod {
	t.Helper()
	dir := filepath.Join(root, "pods", pod, "volumes/kubernetes.io~empty-dir/cache", strconv.Itoa(many))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	in, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(in)
	for i := range many {
		if err := unix.Mknodat(in, strconv.Itoa(i), unix.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	out := podWith(pod, 0)
	podtest.Mounts(v1.Volume{Name: "cache"})(out)
	return out
}

// podsOf are the statistics of pods that have nothing but volumes.
func podsOf(all map[types.UID]localstorage.Pod) (out []statsapi.PodStats) {
	for uid, pod := range all {
		s := statsapi.PodStats{PodRef: statsapi.PodReference{UID: string(uid)}}
		for _, v := range pod.Volumes {
			used := statsapi.FsStats{Time: metav1.NewTime(v.At), InodesUsed: &v.Used.Inodes,
				UsedBytes: &v.Used.Bytes}
			s.VolumeStats = append(s.VolumeStats, statsapi.VolumeStats{Name: v.Name, FsStats: used})
			s.EphemeralStorage = &used
		}
		out = append(out, s)
	}
	return out
}
