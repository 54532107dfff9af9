// Package upkeep cleans up what nobody needs any more, and keeps the kubelet's files in line. It is the
// topmost floor: it looks at all others, and none knows it.
package upkeep

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubemetrics "k8s.io/component-base/metrics"

	"github.com/numalet/numalet/agent/node/config"
	"github.com/numalet/numalet/agent/pods/records"
	"github.com/numalet/numalet/agent/upkeep/checkpoints"
	"github.com/numalet/numalet/agent/upkeep/footprint"
	"github.com/numalet/numalet/agent/upkeep/gc"
	"github.com/numalet/numalet/agent/upkeep/images"
	"github.com/numalet/numalet/agent/upkeep/logs"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/part"
	"github.com/numalet/numalet/internal/quantity"
)

const (
	// sweepPeriod is the time between two cheap searches for unneeded containers and logs.
	sweepPeriod = 15 * time.Second
	// imagesPeriod is the time between two looks at images and their disk, which may fill fast.
	imagesPeriod = 30 * time.Second
)

// Config has what upkeep looks at. All fields are required but Images.
type Config struct {
	Settings *config.Config
	Registry kubemetrics.KubeRegistry
	// Tell records an event of the node.
	Tell   func(eventType, reason, message string)
	Client *cri.Client
	// Running returns the pods in the runtime.
	Running func() []cri.Pod
	Pods    Pods
	// Whole reports whether all of the node's pods are known, and nobody else's are on the host.
	Whole func() bool
	// Images knows who may use which image; nil: whoever names it.
	Images *images.Records
	// Checkpoints says what the kubelet's files are made of. Upkeep fills in what it has itself.
	Checkpoints checkpoints.Config
	// Chores are periodic tasks of other floors.
	Chores []housekeeping.Task
}

// Pods are the pods of the node.
type Pods interface {
	// Active returns the admitted pods that have not ended, as they were admitted.
	Active() []*v1.Pod
	// AtSource returns the spec of a pod, with the status that its source has of it.
	AtSource(types.UID) (*v1.Pod, bool)
	// Get returns a pod.
	Get(types.UID) (*v1.Pod, bool)
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
	place := logfiles.PlaceAt(k.PodLogsDir)
	u.containers = gc.Containers{
		Most: int(c.Settings.DeadContainers.Most), Age: c.Settings.DeadContainers.Age,
		Running: c.Running, Pod: c.Pods.AtSource,
		Remove: records.Records{Runtime: c.Client.Runtime(), Logs: place}.Remove,
	}
	u.sweep = &logs.Sweep{Place: place, Running: c.Running, Ready: c.Whole,
		Known: func(uid types.UID) bool {
			_, known := c.Pods.Get(uid)
			return known
		}}
	var err error
	if u.images, err = newImages(c); err != nil {
		return nil, err
	}
	if u.rotation, err = newRotation(c); err != nil {
		return nil, err
	}
	kept := c.Checkpoints
	kept.Root, kept.Running, kept.Active, kept.Tell = c.Settings.RootDir, c.Running, c.Pods.Active, c.Tell
	u.Checkpoints = checkpoints.New(kept)
	return u, nil
}

// FreeContainers removes all exited containers that are not needed, and returns how many those were.
func (u *Upkeep) FreeContainers(ctx context.Context) (removed int, err error) {
	return u.containers.Free(ctx)
}

// FreeImages removes all images that nothing uses, and returns how many those were.
func (u *Upkeep) FreeImages(ctx context.Context) (removed int, err error) { return u.images.Free(ctx) }

// Parts lists the goroutines that begin once running pods were adopted.
func (u *Upkeep) Parts() []part.Part {
	chores := append(u.c.Chores,
		housekeeping.Task{Name: "memory of the agent", Period: time.Minute, Run: footprint.LetGo})
	return []part.Part{
		part.Of("checkpoints", u.Checkpoints.Run),
		part.Of("housekeeping", housekeeping.New(chores...).Run),
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

// garbage is a task whose failures are events of the node.
func (u *Upkeep) garbage(name string, run func(context.Context) error) housekeeping.Task {
	return housekeeping.Task{Name: name, Period: sweepPeriod, Run: func(ctx context.Context) error {
		err := run(ctx)
		if err != nil && ctx.Err() == nil {
			u.c.Tell(v1.EventTypeWarning, "ContainerGCFailed", err.Error())
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
		Running: c.Running, LogsDir: k.PodLogsDir, Reopen: c.Client.Runtime().ReopenContainerLog,
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
		Tell:     c.Tell, Registry: c.Registry,
		Left: func(left []gc.Image, at time.Time) {
			all := make([]images.Image, 0, len(left))
			for _, i := range left {
				all = append(all, images.Image{ID: i.ID, Names: i.Names})
			}
			c.Images.Keep(all, at)
		},
	}.Of(c.Client, c.Pods.Active))
}
