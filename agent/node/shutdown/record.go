package shutdown

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/metric"
)

// FileName is the name of the kubelet's file about the last shutdown, in the agent's root.
const FileName = "graceful_node_shutdown_state"

// maxFile bounds its size.
const maxFile = 1 << 12

// times are when the last shutdown began and ended, as in the file; zero: it has not, or none was.
type times struct {
	Start time.Time `json:"startTime"`
	End   time.Time `json:"endTime"`
}

// entry has the times of a shutdown to write.
type entry struct {
	times
	lock *os.File // the inhibitor that is released then; nil: none is
}

// recorder keeps the times in a file and in metrics, and releases inhibitors. Only its goroutine waits for the
// disk, and until the API server knows of the ends of pods.
type recorder struct {
	path       string // "": neither file nor metrics
	start, end *metrics.Gauge
	synced     func(context.Context) bool
}

// newRecorder makes the metrics. If c.Dir is "" there are none, and no file.
func newRecorder(c Config) (r recorder, err error) {
	r.synced = c.Synced
	if c.Dir == "" {
		return r, nil
	}
	var s metric.Set
	r.path = filepath.Join(c.Dir, FileName)
	r.start = s.Gauge("kubelet_graceful_shutdown_start_time_seconds",
		"When the last graceful shutdown of the node began, in seconds since 1970.")
	r.end = s.Gauge("kubelet_graceful_shutdown_end_time_seconds",
		"When the last graceful shutdown of the node ended, in seconds since 1970; 0: it has not.")
	return r, s.Register(c.Registry)
}

// load has the metrics tell of the last shutdown.
func (r recorder) load(ctx context.Context) {
	if r.path == "" {
		return
	}
	last, err := files.LoadJSON[times](r.path, maxFile, time.Now())
	if err != nil {
		klog.FromContext(ctx).Info("When the node last went down is not known", "err", err)
		return
	}
	r.show(last)
}

// write writes an entry durably, and releases its inhibitor when others know of the ends of pods.
func (r recorder) write(ctx context.Context, e entry) {
	if r.path != "" {
		raw, err := json.Marshal(e.times)
		if err == nil {
			err = files.ReplaceDurably(r.path, raw)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "The times of the shutdown are not kept")
		}
		r.show(e.times)
	}
	if e.lock == nil {
		return
	}
	defer e.lock.Close()
	within, cancel := context.WithTimeout(ctx, tellWithin)
	defer cancel()
	if !r.synced(within) {
		klog.FromContext(ctx).Info("The machine may go down before all statuses of pods are told",
			"waited", tellWithin)
	}
}

func (r recorder) show(t times) {
	r.start.Set(seconds(t.Start))
	r.end.Set(seconds(t.End))
}

// seconds returns the seconds since 1970; the zero time is 0.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
