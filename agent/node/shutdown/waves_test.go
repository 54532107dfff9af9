package shutdown

import (
	"fmt"
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/numalet/numalet/topology/podspec"
)

func priorities(pairs ...int64) (k kubeletconfig.KubeletConfiguration) {
	for i := 0; i < len(pairs); i += 2 {
		k.ShutdownGracePeriodByPodPriority = append(k.ShutdownGracePeriodByPodPriority,
			kubeletconfig.ShutdownGracePeriodByPodPriority{
				Priority: int32(pairs[i]), ShutdownGracePeriodSeconds: pairs[i+1]})
	}
	return k
}

func periods(all, critical time.Duration) (k kubeletconfig.KubeletConfiguration) {
	k.ShutdownGracePeriod = metav1.Duration{Duration: all}
	k.ShutdownGracePeriodCriticalPods = metav1.Duration{Duration: critical}
	return k
}

// The waves are from the lowest priority to the highest, whatever their order in the configuration.
func TestWaves(t *testing.T) {
	for _, test := range []struct {
		k    kubeletconfig.KubeletConfiguration
		want string
	}{
		{periods(0, 0), "[]"},
		{periods(30*time.Second, 10*time.Second), "[{0 20s} {2000000000 10s}]"},
		{periods(30*time.Second, 0), "[{0 30s} {2000000000 0s}]"},
		{periods(30*time.Second, 30*time.Second), "[{0 0s} {2000000000 30s}]"},
		{priorities(1000, 10, -5, 0, 0, 60), "[{-5 0s} {0 1m0s} {1000 10s}]"},
		{priorities(7, 1, 7, 2), "[{7 1s} {7 2s}]"},
		{priorities(0, math.MaxInt64, 1, math.MaxInt64), "[{0 720h0m0s} {1 720h0m0s}]"},
	} {
		got := Waves(&test.k)
		if fmt.Sprint(got) != test.want {
			t.Errorf("got %v, want %s", got, test.want)
		}
		if sum := total(got); sum < 0 || sum > longest {
			t.Errorf("%v take %v", got, sum)
		}
	}
}

// A pod ends with the wave of its priority, or of the next lower one; below all waves with the first.
func TestWaveOfAPriority(t *testing.T) {
	for _, test := range []struct {
		waves []int64
		want  map[int32]int
	}{
		{[]int64{0, 1, int64(podspec.CriticalPriority), 1}, map[int32]int{
			-1: 0, 0: 0, 1: 0, podspec.CriticalPriority - 1: 0, podspec.CriticalPriority: 1,
			podspec.CriticalPriority + 1000: 1, math.MaxInt32: 1, math.MinInt32: 0,
		}},
		{[]int64{10, 1, 100, 1, 1000, 1}, map[int32]int{
			0: 0, 9: 0, 10: 0, 99: 0, 100: 1, 999: 1, 1000: 2, 1001: 2}},
		{[]int64{5, 1}, map[int32]int{0: 0, 5: 0, 6: 0}},
		{[]int64{7, 1, 7, 1, 9, 1}, map[int32]int{6: 0, 7: 0, 8: 1, 9: 2}},
	} {
		k := priorities(test.waves...)
		for priority, want := range test.want {
			if got := waveOf(Waves(&k), priority); got != want {
				t.Errorf("priority %d of waves %v: %d, want %d", priority, test.waves, got, want)
			}
		}
	}
}
