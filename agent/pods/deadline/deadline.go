// Package deadline ends pods that were active for longer than spec.activeDeadlineSeconds, counted
// from the start time in their status: a restart of the agent gives them no more time.
package deadline

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/topology/podspec"
)

// Reason and Message are the kubelet's, for the pod's status.
const (
	Reason  = "DeadlineExceeded"
	Message = "Pod was active on the node longer than the specified deadline"
)

// Config configures a Keeper. All of it is required.
type Config struct {
	// Pods returns the node's pods with their statuses; those without a deadline may be left out. Changed
	// is published when they change.
	Pods    func() []*v1.Pod
	Changed mailbox.Source
	// Kill ends a pod. It is called once for each and must not block.
	Kill func(*v1.Pod)
}

// Keeper ends pods at their deadlines.
type Keeper struct {
	cfg     Config
	changed <-chan struct{}
}

// New returns a keeper.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, changed: mailbox.Subscribe(cfg.Changed)}
}

// pause is between two looks at the pods, however often they change: deadlines are in seconds.
const pause = 100 * time.Millisecond

// Run ends pods until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	killed := map[types.UID]bool{}
	again := time.After(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		case <-k.changed:
		}
		over, next := due(k.cfg.Pods(), time.Now())
		still := map[types.UID]bool{}
		for _, pod := range over {
			if still[pod.UID] = true; !killed[pod.UID] {
				k.cfg.Kill(pod)
			}
		}
		killed = still
		again = await.At(next)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// due returns the pods that are over their deadline and have not ended, and the time of the next
// deadline; zero: there is none.
func due(pods []*v1.Pod, now time.Time) (over []*v1.Pod, next time.Time) {
	for _, pod := range pods {
		seconds, start := pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime
		if seconds == nil || start.IsZero() || podspec.Ended(pod.Status.Phase) {
			continue
		}
		end := start.Add(time.Duration(*seconds) * time.Second)
		switch {
		case !end.After(now):
			over = append(over, pod)
		default:
			next = await.Earlier(next, end)
		}
	}
	return over, next
}
