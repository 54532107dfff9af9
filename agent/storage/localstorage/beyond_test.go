package localstorage

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/storage/localstorage/held"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cgroups/kernel"
)

// own is a pod whose only process is this one.
func own(t *testing.T) *held.Pods {
	t.Helper()
	mount := t.TempDir()
	dir := filepath.Join(mount, "memory", "pods", "a")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	return &held.Pods{Groups: kernel.NewGroups(mount), Paths: func(types.UID) (cgroups.PodPaths, error) {
		return cgroups.PodPaths{Pod: "/pods/a"}, nil
	}}
}

// TestBeyond: what a pod's processes wrote since its volumes were measured may have made it grow, but not
// by more than the disk grew; what they hold open and deleted counts.
func TestBeyond(t *testing.T) {
	n := newNode(t, with("main", empty("cache", "", "")))
	n.cfg.Processes = own(t)
	const dir = "pods/a/volumes/kubernetes.io~empty-dir/cache/"
	n.write(dir+"file", 1)
	n.look(time.Now())
	before := n.Beyond(t.Context())["a"]
	n.write(dir+"more", 4<<20)
	f, err := os.Open(filepath.Join(n.root, dir, "more"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s unix.Statfs_t
	if unix.Statfs(n.root, &s) != nil || s.Type == unix.TMPFS_MAGIC {
		t.Skip("nothing is counted that is written to a tmpfs")
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	n.disk = disk{used: 1, size: 1 << 40}
	got := n.Beyond(t.Context())["a"]
	if got.Grown < 4<<20 || got.Held.On.Bytes < before.Held.On.Bytes+4<<20 || got.Partial {
		t.Errorf("before it is %+v, and then %+v; want 4 MiB more written, and held", before, got)
	}
	n.disk.used = 1 << 60
	if got := n.Beyond(t.Context())["a"]; got.Grown != 0 {
		t.Errorf("on a disk that did not grow it grew by %d", got.Grown)
	}
}

// TestLogsAnew: who asks for pods to be measured anew has their logs measured too, before their time.
func TestLogsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, with("main", empty("cache", "", "")))
		const log = "logs/default_a_a/main/0.log"
		n.write(log, 4096)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- n.Run(ctx) }()
		n.Get()
		time.Sleep(time.Second)
		n.write(log, 1<<20)
		n.Anew([]types.UID{"a"})
		time.Sleep(time.Second)
		if used := n.Get()["a"].Logs["main"]; used.Bytes < 1<<20 {
			t.Errorf("logs use %+v; want 1 MiB", used)
		}
		cancel()
		<-done
	})
}
