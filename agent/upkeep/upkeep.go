// Package upkeep cleans up what is no longer needed, and keeps the kubelet's files in line. It is the
// topmost floor: it looks at all others, and none knows it.
package upkeep

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node"
	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/placement"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/pods"
	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/agent/pods/records"
	"github.com/numalet/numalet/agent/storage"
	"github.com/numalet/numalet/agent/upkeep/checkpoints"
	"github.com/numalet/numalet/agent/upkeep/footprint"
	"github.com/numalet/numalet/agent/upkeep/gc"
	"github.com/numalet/numalet/agent/upkeep/images"
	"github.com/numalet/numalet/agent/upkeep/logs"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/quantity"
	"github.com/numalet/numalet/topology"
)

const (
	// sweepPeriod is the time between two cheap searches for unneeded containers and logs.
	sweepPeriod = 15 * time.Second
	// imagesPeriod is the time between two looks at images and their disk, which may fill fast.
	imagesPeriod = 30 * time.Second
)

// Config has the floors that upkeep looks at. All fields are required.
type Config struct {
	*node.Host
	Placement *placement.Placement
	Resources placement.Resources
	Storage   *storage.Storage
	Pods      *pods.Pods
	PLEG      *lifecycle.PLEG
	Images    Images
	Gauges    Gauges
}

// Gauges are brought up to date from time to time; *metrics.Metrics has them.
type Gauges interface {
	CPUs(machine *topology.Machine, exclusive, available cpuset.CPUSet)
	Placed([]allocation.Pod)
	Pods(desired, active []*v1.Pod)
}

// Upkeep is the floor.
type Upkeep struct {
	*checkpoints.Checkpoints
	containers gc.Containers
	images     *gc.Images
	rotation   housekeeping.Task
	sweep      *logs.Sweep
	c          Config
}

// New makes the floor. It reads and writes nothing.
func New(c Config) (*Upkeep, error) {
	k := &c.Settings.Kubelet
	u := &Upkeep{c: c}
	footprint.Spend()
	place := logfiles.PlaceAt(k.PodLogsDir)
	u.containers = gc.Containers{
		Most: int(c.Settings.DeadContainers.Most), Age: c.Settings.DeadContainers.Age,
		Running: c.PLEG.All, Pod: c.Pods.AtSource,
		Remove: records.Records{Runtime: c.Client.Runtime(), Logs: place}.Remove,
	}
	u.sweep = &logs.Sweep{Place: place, Running: c.PLEG.All, Known: c.Pods.Known,
		Ready: func() bool { // else some may be another agent's
			return !c.Others.Run() && c.Pods.Whole()
		}}
	var err error
	if u.images, err = newImages(c); err != nil {
		return nil, err
	}
	if u.rotation, err = newRotation(c); err != nil {
		return nil, err
	}
	u.Checkpoints = checkpoints.New(checkpoints.Config{
		Root: c.Settings.RootDir, DeviceDir: placement.DeviceDir(c.Settings.RootDir), BootID: c.BootID,
		Store: c.Placement.Store, Hardware: c.Hardware.Get, Inventory: c.Placement.Plugins.Inventory,
		Running: c.PLEG.All, Active: c.Pods.Active, Lasting: c.Pods.Sources.Lasting, Admitted: c.Pods.Admitted,
		Behind: c.Resources.Loop.Behind,
		Tell:   c.Events.OnNode,
		Changed: mailbox.Subscribe(c.Placement.Store.Changes(), c.Pods.Changes(), c.Placement.Offered,
			c.Hardware.Changes()),
	})
	return u, nil
}

// Reclaim removes what no pod needs, and reports whether there was something.
func (u *Upkeep) Reclaim(ctx context.Context, what eviction.Reclaim) (some bool, err error) {
	dead, old := 0, 0
	if what.Containers {
		dead, err = u.containers.Free(ctx)
	}
	if what.Images {
		var more error
		old, more = u.images.Free(ctx)
		err = errors.Join(err, more)
	}
	return dead+old > 0, err
}

// Parts lists the goroutines that begin once running pods were adopted.
func (u *Upkeep) Parts() []part.Part {
	return []part.Part{
		part.Of("checkpoints", u.Checkpoints.Run),
		part.Of("housekeeping", housekeeping.New(u.chores()...).Run),
		part.Of("dead containers", housekeeping.New(
			u.garbage("dead containers", u.containers.Look),
			u.garbage("logs of what is gone", u.sweep.Look)).Run),
		part.Chore(u.rotation),
		part.Chore(housekeeping.Task{
			Name: "unused images", Period: imagesPeriod, Run: u.images.Look,
			First: time.Second, // this look only sees what there is: nothing has an age yet
		}),
	}
}

// housekeepingPeriod is the kubelet's.
const housekeepingPeriod = 2 * time.Second

// chores are quick: they come one after another.
func (u *Upkeep) chores() []housekeeping.Task {
	machine, changed, assigned := u.c.Hardware.Changes(), u.c.Pods.Changes(), u.c.Placement.Store.Changes()
	return []housekeeping.Task{
		{
			Name: "cgroups above the pods", Period: housekeepingPeriod,
			On: []mailbox.Source{machine, changed}, Run: u.c.Resources.Groups.Update,
		},
		u.c.Placement.Look(u.c.Pods.Placed()),
		u.c.Pods.Orphans(u.c.Placement.Store.State, housekeepingPeriod, u.remains()),
		{
			Name: "gauges", Period: time.Minute, On: []mailbox.Source{machine, changed, assigned},
			Run: u.gauges,
		},
		{Name: "memory of the agent", Period: time.Minute, Run: footprint.LetGo},
	}
}

// remains lists the pods of which something is left on the host.
func (u *Upkeep) remains() map[string]func() ([]types.UID, error) {
	return map[string]func() ([]types.UID, error){
		"directories": func() ([]types.UID, error) { return u.c.Storage.Volumes.Orphans(nil) },
		"cgroups": func() ([]types.UID, error) {
			if u.c.Tree == nil || u.c.Others.Run() { // else it may be one of theirs
				return nil, nil
			}
			return u.c.Tree.Orphans(func(types.UID) bool { return false })
		},
	}
}

// gauges brings the gauges up to date.
func (u *Upkeep) gauges(context.Context) error {
	var exclusive, available cpuset.CPUSet // without the static policy none, as the kubelet says
	h, state := u.c.Hardware.Get(), u.c.Placement.Store.State()
	if h.CPUs != nil {
		exclusive = state.CPUs()
		available = u.c.Resources.Loop.Shared().Difference(h.CPUs.Reserved())
	}
	u.c.Gauges.CPUs(h.Machine, exclusive, available)
	u.c.Gauges.Placed(state.List())
	u.c.Gauges.Pods(u.c.Pods.Specs(), u.c.Pods.Active())
	return nil
}

// garbage is a task whose failures are events of the node.
func (u *Upkeep) garbage(name string, run func(context.Context) error) housekeeping.Task {
	return housekeeping.Task{Name: name, Period: sweepPeriod, Run: func(ctx context.Context) error {
		err := run(ctx)
		if err != nil && ctx.Err() == nil {
			u.c.Events.OnNode(v1.EventTypeWarning, "ContainerGCFailed", err.Error())
		}
		return err
	}}
}

// newRotation keeps the logs of running containers at their size.
func newRotation(c Config) (housekeeping.Task, error) {
	k := &c.Settings.Kubelet
	size, err := quantity.Parse(k.ContainerLogMaxSize)
	if err != nil {
		return housekeeping.Task{}, err
	}
	r := logs.New(logs.Config{
		Running: c.PLEG.All, LogsDir: k.PodLogsDir, Reopen: c.Client.Runtime().ReopenContainerLog,
		MaxSize: size.Value(), MaxFiles: int(*k.ContainerLogMaxFiles),
		Workers: int(*k.ContainerLogMaxWorkers),
	})
	return housekeeping.Task{
		Name: "log rotation", Period: k.ContainerLogMonitorInterval.Duration, Run: r.Look,
	}, nil
}

// newImages removes images that nothing uses.
func newImages(c Config) (*gc.Images, error) {
	k := &c.Settings.Kubelet
	return gc.NewImages(gc.ImagesConfig{
		Policy: gc.ImagePolicy{
			High: int(*k.ImageGCHighThresholdPercent), Low: int(*k.ImageGCLowThresholdPercent),
			MinAge: k.ImageMinimumGCAge.Duration, MaxAge: k.ImageMaximumGCAge.Duration,
		},
		Handlers: c.Settings.Enabled("RuntimeClassInImageCriApi"),
		Tell:     c.Events.OnNode, Registry: c.Registry,
		Left: func(left []gc.Image, at time.Time) {
			all := make([]images.Image, 0, len(left))
			for _, i := range left {
				all = append(all, images.Image{ID: i.ID, Names: i.Names})
			}
			c.Images.records.Keep(all, at)
		},
	}.Of(c.Client, c.Pods.Active))
}
