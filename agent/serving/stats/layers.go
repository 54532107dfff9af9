package stats

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/diskusage"
)

// Looks at writable layers take within at most; lookers look at once, and are awaited for late after that.
const within, late, lookers = 300 * time.Millisecond, 50 * time.Millisecond, 4

// layers looks at writable layers.
type layers struct {
	cfg     *Config
	looking atomic.Int32 // how many look
}

// layer is where a container is in a snapshot, and where its files are.
type layer struct {
	pod, container int
	dir            string
}

// all lists the writable layers.
func (l *layers) all(s *Snapshot) (out []layer) {
	groups := l.cfg.Groups.Reader()
	for i, p := range s.Pods {
		paths := l.cfg.Groups.paths(&p)
		for j, one := range p.Containers {
			path := paths.Container(one.ID)
			if path == "" {
				continue
			}
			if pid, ok := groups.Process(path); ok {
				if dir := l.cfg.Proc.UpperDir(pid); dir != "" {
					out = append(out, layer{i, j, dir})
				}
			}
		}
	}
	return out
}

// anew returns the snapshot with writable layers as they are now: one that the runtime measured a moment
// ago may have grown since. A layer that takes too long counts as far as it was read. If the runtime's
// value is greater, that stays. A disk that hangs keeps the goroutines that read it, but not the caller;
// until they return, anew reads nothing and returns s.
func (l *layers) anew(ctx context.Context, s *Snapshot) *Snapshot {
	type found struct {
		layer
		diskusage.Usage
		there bool
	}
	all := l.all(s)
	if len(all) == 0 || !l.looking.CompareAndSwap(0, lookers) {
		return s
	}
	wait, cancel := context.WithTimeout(ctx, within+late)
	defer cancel()
	ctx, end := context.WithTimeout(ctx, within)
	defer end()
	results := make(chan found, len(all))
	for from := range lookers {
		go func() {
			defer l.looking.Add(-1)
			for i := from; i < len(all) && ctx.Err() == nil; i += lookers {
				used, _, err := diskusage.Of(ctx, all[i].dir, func() bool { return true })
				results <- found{all[i], used, err == nil || ctx.Err() != nil}
			}
		}()
	}
	out := *s
	out.Pods = slices.Clone(s.Pods)
	now := metav1.Now()
	for range all {
		select {
		case <-wait.Done():
			return &out
		case f := <-results:
			if !f.there {
				continue
			}
			of := &out.Pods[f.pod]
			of.Containers = slices.Clone(of.Containers)
			of.Containers[f.container] = of.Containers[f.container].seen(f.Usage, now)
		}
	}
	return &out
}

// seen returns the container with what was seen of its writable layer, if that is more than what was
// known: which directory has the layer was found by a process of the container, which can deceive.
func (c Container) seen(u diskusage.Usage, at metav1.Time) Container {
	before := c.Stats.Rootfs
	if c.Partial = u.Partial; before == nil || ptr.Deref(before.UsedBytes, 0) <= u.Bytes {
		c.Stats.Rootfs = &statsapi.FsStats{Time: at, UsedBytes: &u.Bytes, InodesUsed: &u.Inodes}
	}
	return c
}
