package resources

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
)

// inMemory is a pod with a volume in memory of this size.
func inMemory(pod *v1.Pod, size string) *v1.Pod {
	limit := resource.MustParse(size)
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "shm", VolumeSource: v1.VolumeSource{
		EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory, SizeLimit: &limit}}})
	return pod
}

// A volume in memory shrinks before the pod's memory does, and grows after that has grown.
func TestOrderOfVolumes(t *testing.T) {
	n := newNode(Settings{ResizesVolumes: true}, machine.Hardware{Machine: eightCPUs(t)}, allocation.State{})
	for name, c := range map[string]struct{ have, haves, want, wants, order string }{
		"shrinks with the memory": {"a 1 2Gi", "1Gi", "a 1 1Gi", "64Mi",
			"a memory, pod size-of-a-volume | pod memory | "},
		"grows with the memory":  {"a 1 1Gi", "64Mi", "a 1 2Gi", "1Gi", " | pod memory | a memory, pod size-of-a-volume"},
		"alone":                  {"a 1 1Gi", "64Mi", "a 1 1Gi", "1Gi", " |  | pod size-of-a-volume"},
		"grows while that falls": {"a 1 2Gi", "64Mi", "a 1 1Gi", "128Mi", "a memory | pod memory | pod size-of-a-volume"},
	} {
		t.Run(name, func(t *testing.T) {
			order := steps(resizing(&n, inMemory(sized(c.have), c.haves), inMemory(sized(c.want), c.wants)))
			for i := range order {
				slices.SortStableFunc(order[i], func(a, b lack) int { return len(b.ID) - len(a.ID) })
			}
			if got := story(order); got != c.order {
				t.Errorf("got  %q\nwant %q", got, c.order)
			}
		})
	}
}

// A volume gets its size once; while it does not, the pod has not all that it is allocated, and its memory is not
// changed if the volume is to shrink first.
func TestVolumesAreResized(t *testing.T) {
	bothKernels(t, func(t *testing.T, k *kernel) {
		n, pool := startNode(t, k)
		pool.cfg.Settings.ResizesVolumes = true
		var full error
		var given []string
		pool.cfg.ResizeVolume = func(uid types.UID, name string, size int64) error {
			given = append(given, fmt.Sprint(uid, " ", name, " ", size))
			return full
		}
		k.podOf(n, inMemory(asking("p", "2", "64Mi"), "32Mi"))
		pool.Wake()
		expectUpdates(t, n, "at first", "")
		full = errors.New("it is full")
		n.sees(pool, inMemory(asking("p", "2", "32Mi"), "16Mi"))
		pool.Follow("p")
		expectSettled(t, n, "it is full", "p: it is full")
		memory := "memory.max"
		if k.legacy {
			memory = "memory.limit_in_bytes"
		}
		if _, err := os.Stat(k.pod("p", memory)); err == nil {
			t.Error("the pod's memory is changed")
		}
		full, given = nil, nil
		time.Sleep(time.Minute)
		expectSettled(t, n, "it is not any more", "p: <nil>")
		k.expectPod("p", 2, "33554432")
		if want := []string{"p shm 16777216"}; !slices.Equal(given, want) {
			t.Errorf("given were %q, want %q", given, want)
		}
	})
}
