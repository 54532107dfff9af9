package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/gc"
	"github.com/numalet/numalet/agent/housekeeping"
	"github.com/numalet/numalet/agent/logs"
	"github.com/numalet/numalet/agent/source"
	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/internal/quantity"
)

// sweepPeriod is how often is looked for containers and logs that are not needed any more, which
// costs little.
const sweepPeriod = 15 * time.Second

// reasonContainerGC is the reason of the event of a look that failed.
const reasonContainerGC = "ContainerGCFailed"

// garbageParts remove what nothing needs any more, each in a goroutine of its own: what one of them
// waits for delays no other.
func garbageParts(n node, p parts) ([]part, error) {
	rotation, err := newRotation(n, p)
	if err != nil {
		return nil, err
	}
	containers := housekeeping.New(
		housekeeping.Task{Name: "dead containers", Period: sweepPeriod,
			Run: failing(n, reasonContainerGC, newContainerGC(n, p).Look)},
		housekeeping.Task{Name: "logs of what is gone", Period: sweepPeriod,
			Run: failing(n, reasonContainerGC, newSweep(n, p).Look)},
	)
	images, err := newImageGC(n, p)
	return []part{{"log rotation", rotation.Run}, {"dead containers", containers.Run},
		{"unused images", images.Run}}, err
}

// failing has a failure told as an event of the node too.
func failing(n node, reason string, run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := run(ctx)
		if err != nil && ctx.Err() == nil {
			n.events.OnNode(v1.EventTypeWarning, reason, err.Error())
		}
		return err
	}
}

func logPlace(n node) logs.Place {
	dir := n.cfg.Kubelet.PodLogsDir
	return logs.Place{Dir: dir, Links: logLinks(dir)}
}

// newRotation keeps the logs of running containers at their size.
func newRotation(n node, p parts) (*housekeeping.Housekeeping, error) {
	k := &n.cfg.Kubelet
	size, err := quantity.Parse(k.ContainerLogMaxSize)
	if err != nil {
		return nil, err
	}
	r := logs.New(logs.Config{
		Running: p.observer.All, LogsDir: k.PodLogsDir, Reopen: n.client.Runtime().ReopenContainerLog,
		MaxSize: size.Value(), MaxFiles: int(*k.ContainerLogMaxFiles),
		Workers: int(*k.ContainerLogMaxWorkers),
	})
	return housekeeping.New(housekeeping.Task{
		Name: "log rotation", Period: k.ContainerLogMonitorInterval.Duration, Run: r.Look,
	}), nil
}

// newContainerGC keeps the containers that have exited below their bound.
func newContainerGC(n node, p parts) gc.Containers {
	return gc.Containers{
		Most: int(n.cfg.DeadContainers.Most), Age: n.cfg.DeadContainers.Age,
		Running: p.observer.All,
		Ended: func(uid types.UID) bool {
			pod, known := p.statuses.Get(uid)
			// The status of a static pod is made of what the runtime has, after a restart.
			return known && pod.Annotations[source.AnnotationSource] == source.APISource &&
				status.Ended(pod.Status.Phase)
		},
		Remove: gc.Records{Runtime: n.client.Runtime(), Logs: logPlace(n)}.Remove,
	}
}

// newSweep removes what logs are left of pods that are gone.
func newSweep(n node, p parts) *logs.Sweep {
	return &logs.Sweep{
		Place: logPlace(n),
		Ready: func() bool {
			// Or some may be another agent's.
			return !n.runtime.others.Run() && p.sources.SeenAll(func(string) bool { return true })
		},
		Known: func(uid types.UID) bool {
			_, known := p.statuses.Get(uid)
			return known
		},
		Running: p.observer.All,
	}
}
