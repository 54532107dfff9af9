package storage

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/operation"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/mailbox"
	"github.com/numalet/numalet/internal/part"
)

// made is the floor of a node with these gates, in a cluster or not.
func made(t *testing.T, clustered bool, stats time.Duration, gates ...string) *Storage {
	t.Helper()
	c := Config{
		Root: t.TempDir(), LogsDir: t.TempDir(), Node: "n", ClusterDomain: "cluster.local",
		Enabled:     func(gate string) bool { return slices.Contains(gates, gate) },
		StatsPeriod: stats, SyncPeriod: time.Minute,
		Facts:  func() cri.Facts { return cri.Facts{} },
		Object: func() *v1.Node { return nil },
		Ends: Ends{
			Ends: volume.Ends{Done: func(operation.Done) {},
				Tell: func(runtime.Object, string, string, string) {}},
			OnNode: func(string, string, string) {}, Looked: func(string, time.Duration) {},
			Measured: func(volume.Measured) {},
		},
	}
	if clustered {
		c.Cluster = &Cluster{Objects: noObjects{}, Changed: new(mailbox.Topic)}
	}
	s, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noObjects is an API server that is never asked.
type noObjects struct{ Objects }

func names(parts []part.Part) string {
	var out []string
	for _, p := range parts {
		out = append(out, p.Name)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// TestParts: what runs, by settings and whether the node is in a cluster. Volumes are measured only every so
// often, and drivers asked for their health only with the gate and in a cluster.
func TestParts(t *testing.T) {
	const health = "CSIVolumeHealth"
	again, pods := func(types.UID) {}, func() []*v1.Pod { return nil }
	for _, tt := range []struct {
		clustered bool
		stats     time.Duration
		gates     []string
		chores    string
	}{
		{true, time.Minute, []string{health}, "growth of volumes, health of volumes, room of volumes"},
		{true, -1, []string{health}, "growth of volumes, health of volumes"},
		{true, time.Minute, nil, "growth of volumes, room of volumes"},
		{false, time.Minute, []string{health}, "growth of volumes, room of volumes"},
		{false, 0, nil, "growth of volumes"},
	} {
		s := made(t, tt.clustered, tt.stats, tt.gates...)
		if got := names(s.Chores(pods, again)); got != tt.chores {
			t.Errorf("%+v: the chores are %s", tt, got)
		}
		if asks := strings.Contains(tt.chores, "health"); s.AsksHealth() != asks || (s.Health() != nil) != asks {
			t.Errorf("%+v: drivers are asked for health: %v", tt, s.AsksHealth())
		}
		first := names(s.Parts(again))
		for _, name := range []string{"volumes without records", "attached disks"} {
			if strings.Contains(first, name) != tt.clustered {
				t.Errorf("%+v: from the start run %s", tt, first)
			}
		}
	}
}

// TestHealth: a status has what drivers said last of its pod's volumes, and nothing before they have said something.
// The pods whose volumes' health is another are looked at again.
func TestHealth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := made(t, true, 0, "CSIVolumeHealth")
		if said := s.Health()("p"); said != nil {
			t.Errorf("before drivers were asked they said %v", said)
		}
		s.health.Store(&map[types.UID]volume.Health{"p": {"data": {{Message: "it is slow"}}}})
		if said := s.Health()("p"); len(said["data"]) != 1 {
			t.Errorf("drivers said %v", said)
		}
		none := func() []*v1.Pod { return nil }
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for _, chore := range s.Chores(none, func(pod types.UID) { t.Errorf("pod %s is looked at again", pod) }) {
			if chore.Name != "health of volumes" {
				continue
			}
			if err := chore.Run(ctx); err != nil {
				t.Error(err)
			}
		}
		if said := s.Health()("p"); said != nil {
			t.Errorf("of a pod that is gone drivers said %v", said)
		}
	})
}

// TestRecognize: the node's status is read at the start, and again whenever it is another.
func TestRecognize(t *testing.T) {
	s := made(t, true, 0)
	read := make(chan struct{}, 10)
	s.c.Object = func() *v1.Node {
		read <- struct{}{}
		return nil
	}
	changed := new(mailbox.Topic)
	s.c.Cluster.Changed = changed
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.recognize(ctx) }()
	<-read
	changed.Publish()
	<-read
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
