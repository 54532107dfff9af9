package deadline

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/podtest"
)

func podOf(uid types.UID, start time.Time, seconds *int64, phase v1.PodPhase) *v1.Pod {
	return podtest.New(string(uid), podtest.Phase(phase), func(p *v1.Pod) {
		p.Spec.ActiveDeadlineSeconds = seconds
		if !start.IsZero() {
			p.Status.StartTime = new(metav1.NewTime(start))
		}
	})
}

func TestDue(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ago := func(seconds int) time.Time { return now.Add(-time.Duration(seconds) * time.Second) }
	over, next := due([]*v1.Pod{
		podOf("none", ago(100), nil, v1.PodRunning),
		podOf("ended", ago(100), ptr.To[int64](1), v1.PodFailed),
		podOf("unborn", time.Time{}, ptr.To[int64](1), v1.PodPending),
		podOf("over", ago(10), ptr.To[int64](10), v1.PodRunning),
		podOf("waits", ago(10), ptr.To[int64](9), v1.PodPending),
		podOf("later", ago(10), ptr.To[int64](30), v1.PodRunning),
		podOf("soon", ago(10), ptr.To[int64](15), v1.PodRunning),
	}, now)
	if len(over) != 2 || over[0].UID != "over" || over[1].UID != "waits" ||
		!next.Equal(now.Add(5*time.Second)) {
		t.Errorf("over %v, next %v", over, next)
	}
	if over, next := due(nil, now); over != nil || !next.IsZero() {
		t.Errorf("of none: %v, %v", over, next)
	}
}

// Each pod is killed once, at its deadline, also one that came later or is an earlier agent's.
func TestKills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		var changed mailbox.Topic
		pods := []*v1.Pod{podOf("old", begun.Add(-time.Hour), ptr.To[int64](9), v1.PodRunning),
			podOf("a", begun, ptr.To[int64](10), v1.PodRunning)}
		var killed []string
		k := New(Config{Pods: func() []*v1.Pod { return pods }, Changed: &changed,
			Kill: func(p *v1.Pod) {
				killed = append(killed, string(p.UID)+" "+time.Since(begun).String())
			}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		pods = append(pods, podOf("b", time.Now(), ptr.To[int64](2), v1.PodRunning))
		changed.Publish()
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []string{"old 0s", "b 5s", "a 10s"}
		if !slices.Equal(killed, want) {
			t.Errorf("killed %q, want %q", killed, want)
		}
	})
}
