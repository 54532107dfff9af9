package stats

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/agent/stats/diskusage"
)

const (
	// A writable layer that the runtime has measured within lately needs no other look; looks take within
	// at most, and lookers look at once.
	lately, within, lookers = 2 * time.Second, 300 * time.Millisecond, 4
)

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

// old lists the writable layers that were not measured lately.
func (l *layers) old(s *Snapshot) (out []layer) {
	groups, now := l.cfg.Groups.Reader(), time.Now()
	for i, p := range s.Pods {
		paths := l.cfg.Groups.paths(&p)
		for j, one := range p.Containers {
			if r := one.Stats.Rootfs; r != nil && now.Sub(r.Time.Time) < lately {
				continue
			}
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

// anew returns the snapshot with writable layers as they are now. A disk that hangs keeps those who
// look, but not the caller; as long as it does nobody else looks.
func (l *layers) anew(ctx context.Context, s *Snapshot) *Snapshot {
	type found struct {
		layer
		diskusage.Usage
	}
	all := l.old(s)
	if len(all) == 0 || !l.looking.CompareAndSwap(0, lookers) {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	results := make(chan found, len(all))
	for from := range lookers {
		go func() {
			defer l.looking.Add(-1)
			for i := from; i < len(all) && ctx.Err() == nil; i += lookers {
				used, _, err := diskusage.Of(ctx, all[i].dir, nil)
				used.Partial = used.Partial || err != nil
				results <- found{all[i], used}
			}
		}()
	}
	out := *s
	out.Pods = slices.Clone(s.Pods)
	now := metav1.Now()
	for range all {
		select {
		case <-ctx.Done():
			return &out
		case f := <-results:
			if !f.Partial {
				of := &out.Pods[f.pod]
				of.Containers = slices.Clone(of.Containers)
				of.Containers[f.container].Stats.Rootfs = &statsapi.FsStats{Time: now,
					UsedBytes: &f.Bytes, InodesUsed: &f.Inodes}
			}
		}
	}
	return &out
}
