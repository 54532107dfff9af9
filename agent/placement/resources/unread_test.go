package resources

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/node/machine"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/cgroups"
	"github.com/numalet/numalet/cri"
)

// A cgroup that cannot be read is counted each time and logged once; meanwhile the runtime's report
// counts. A cgroup that does not exist is neither.
func TestACgroupThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		reported := func() int {
			text := log.GetSink().(ktesting.Underlier).GetBuffer().String()
			return strings.Count(text, "cannot be read")
		}
		k := newKernel(t)
		n := &world{real: map[types.UID]cri.Pod{}, seen: map[types.UID]cri.Pod{}, kernel: k}
		unread := 0
		now := Node{online: cpusOf(cpuset.New(1)), hardware: machine.Hardware{}}
		r := reader{&now, k, func() { unread++ }, n.spec, nothingRan}
		known := records{}
		round := func() (lacking int) {
			var found []live
			ctx := klog.NewContext(t.Context(), log)
			found, known = r.all(ctx, n.All(), known)
			return len(compare(found, &now, time.Now()).lacks)
		}
		n.runs("none", "1", true)
		n.runsReally("a", "1")
		if lacking := round(); unread != 0 || lacking > 0 {
			t.Fatalf("%d cgroups unread, %d containers lack something", unread, lacking)
		}
		file := k.container("a", "cpuset.cpus")
		unreadable := func() { // even for root
			if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o755)); err != nil {
				t.Fatal(err)
			}
		}
		unreadable()
		for range 3 {
			if lacking := round(); lacking > 0 {
				t.Errorf("%d containers lack something", lacking)
			}
		}
		if unread != 3 || reported() != 1 {
			t.Errorf("counted %d times, told %d times, want 3 and 1", unread, reported())
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		k.set("a", "1")
		round()
		unreadable()
		round()
		if unread != 4 || reported() != 2 {
			t.Errorf("again: counted %d times, told %d times, want 4 and 2", unread, reported())
		}
	})
}

// An unreadable CPU quota of a pod is counted and logged too; a missing one is not.
func TestUnreadablePodQuota(t *testing.T) {
	log := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx := klog.NewContext(t.Context(), log)
	k := newKernel(t)
	k.limit("a", k.pod, cgroups.CPULimit{Quota: 100_000, Period: 100_000})
	unread := 0
	n := &world{assigned: map[types.UID]allocation.Pod{}}
	n.assign("a", 1)
	n.assign("none", 2)
	now := newNode(Settings{}, machine.Hardware{Machine: eightCPUs(t)}, n.state())
	r := reader{&now, k, func() { unread++ }, n.spec, nothingRan}
	known := records{}
	read := func(uid types.UID) *cgroups.CPULimit {
		pod := live{pod: &cri.Pod{UID: uid, Containers: []cri.Container{
			{ID: string(uid) + "-c", Name: "c", State: cri.ContainerRunning}}}}
		pod.spec, _ = n.spec("a")
		return r.look(ctx, pod, known, known).kernel.quota
	}
	if has := read("none"); has != nil || unread != 0 {
		t.Errorf("of no pod: %v, %d unread", has, unread)
	}
	if has := read("a"); has == nil || unread != 0 {
		t.Errorf("readable: %v, %d unread", has, unread)
	}
	file := k.pod("a", "cpu.max")
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o755)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if has := read("a"); has != nil {
			t.Errorf("unreadable: %v", has)
		}
	}
	text := log.GetSink().(ktesting.Underlier).GetBuffer().String()
	if reported := strings.Count(text, "cannot be read"); unread != 3 || reported != 1 {
		t.Errorf("counted %d times, told %d times", unread, reported)
	}
}
