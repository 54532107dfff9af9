package storage

import (
	"context"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/housekeeping"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// Parts lists the goroutines that run from the start. They have volumes unstaged and disks detached, and
// call again for a pod when its driver has registered or its volume is attached.
func (s *Storage) Parts(again func(pod types.UID)) []part.Part {
	parts := []part.Part{
		part.Of("drivers of CSI volumes", s.Drivers.Run),
		part.Of("CSI volumes", s.Mounts.Run),
		part.Of("disks that no pod uses", s.Volumes.Disks().Run),
		part.Each("pods that wait for drivers", s.waking, again),
		on("news of drivers", s.Drivers.Changed, s.Mounts.DriversChanged),
	}
	if s.c.Cluster == nil {
		return parts
	}
	return append(parts, part.Of("volumes without records", s.recognize),
		on("attached disks", s.c.Cluster.Changed, s.Volumes.Disks().AttachedChanged))
}

// on is a goroutine that does it each time that the source is published.
func on(name string, source mailbox.Source, do func()) part.Part {
	news := mailbox.Subscribe(source)
	return part.Of(name, func(ctx context.Context) error {
		for await.On(ctx, news) {
			do()
		}
		return nil
	})
}

// recognize names volumes whose records are lost, from the lists of volumes in the node's status.
func (s *Storage) recognize(ctx context.Context) error {
	changed := mailbox.Subscribe(s.c.Cluster.Changed)
	for {
		if node := s.c.Object(); node != nil {
			var names []string
			for _, is := range node.Status.VolumesAttached {
				names = append(names, string(is.Name))
			}
			for _, name := range node.Status.VolumesInUse {
				names = append(names, string(name))
			}
			s.Mounts.Recognize(names)
		}
		if !await.On(ctx, changed) {
			return nil
		}
	}
}

// Chores lists the goroutines that begin once running pods were adopted. They look at the volumes of pods that
// have not ended; again is called for a pod when the health of its volumes changes.
func (s *Storage) Chores(pods func() []*v1.Pod, again func(pod types.UID)) []part.Part {
	tasks := []housekeeping.Task{{
		Name: "growth of volumes", Period: s.c.SyncPeriod, // as often as the kubelet looks at PVCs
		Run: func(ctx context.Context) error { return s.Volumes.Grower.Grow(ctx, pods()) },
	}}
	if s.c.StatsPeriod > 0 {
		tasks = append(tasks, housekeeping.Task{
			Name: "room of volumes", Period: s.c.StatsPeriod, First: time.Second,
			Run: func(ctx context.Context) error {
				found := s.Volumes.Meter.Measure(ctx, pods(), s.c.Looked)
				s.c.Measured(found)
				rooms := found.ByPod()
				s.rooms.Store(&rooms)
				return nil
			},
		})
	}
	if s.AsksHealth() {
		period := s.c.StatsPeriod
		if period <= 0 {
			period = time.Minute
		}
		tasks = append(tasks, housekeeping.Task{
			Name: "health of volumes", Period: period, First: time.Second,
			Run: func(ctx context.Context) error {
				s.askHealth(ctx, pods(), again)
				return nil
			},
		})
	}
	var parts []part.Part
	for _, task := range tasks { // file systems and drivers of others may take their time
		parts = append(parts, part.Chore(task))
	}
	return parts
}

// Rooms returns the room of the volumes that others serve, by pod, as measured last. The map must not be
// changed.
func (s *Storage) Rooms() map[types.UID][]volume.PodRoom {
	if now := s.rooms.Load(); now != nil {
		return *now
	}
	return nil
}

// AsksHealth reports whether CSI drivers are asked for the health of volumes and of their storage.
func (s *Storage) AsksHealth() bool { return s.c.Cluster != nil && s.c.Enabled("CSIVolumeHealth") }

// Health returns what statuses of pods say of their volumes; nil: nothing.
func (s *Storage) Health() func(pod types.UID) map[string][]v1.VolumeHealthCondition {
	if !s.AsksHealth() {
		return nil
	}
	return func(pod types.UID) map[string][]v1.VolumeHealthCondition { return s.healthNow()[pod] }
}

func (s *Storage) healthNow() map[types.UID]volume.Health {
	if now := s.health.Load(); now != nil {
		return *now
	}
	return nil
}

// askHealth calls changed for each pod whose volumes' health has changed.
func (s *Storage) askHealth(ctx context.Context, pods []*v1.Pod, changed func(pod types.UID)) {
	s.Drivers.AskStorage()
	before, now := s.healthNow(), s.Volumes.Meter.Health(ctx, pods)
	s.health.Store(&now)
	for pod, is := range now {
		if !reflect.DeepEqual(before[pod], is) {
			changed(pod)
		}
	}
}
