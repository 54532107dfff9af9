package guest_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"testing"
)

// facts must not change for a container while its agent is away. Promised outlives the container.
type facts struct {
	Promised struct {
		CPUs, Mems string
		Exclusive  bool
		Devices    map[string][]string
	}
	ID       string
	PID      int
	Restarts int32
	CPUs     string // what the kernel has
	Mems     string
}

func (g guest) facts(names ...string) map[string]facts {
	g.t.Helper()
	out := map[string]facts{}
	for _, name := range names {
		l := g.look(name)
		f := facts{ID: id(l.pod), PID: l.pid,
			Restarts: l.pod.Status.ContainerStatuses[0].RestartCount,
			CPUs:     l.cpus(g.t).String(), Mems: l.mems(g.t).String()}
		f.Promised.CPUs, f.Promised.Mems = l.promise.CPUs, l.promise.MemoryNodes
		f.Promised.Exclusive, f.Promised.Devices = l.promise.Exclusive, l.promise.Devices
		out[name] = f
	}
	return out
}

// unchanged: the containers are as they were, and no plugin was asked for devices.
func (g guest) unchanged(before map[string]facts, calls int) {
	g.t.Helper()
	for name, was := range before {
		g.Eventually(name+" is as before", func() error {
			if now := g.facts(name)[name]; !reflect.DeepEqual(now, was) {
				return fmt.Errorf("before: %+v\nnow: %+v", was, now)
			}
			return nil
		})
		row(g.t, "%s: process %d on CPUs %s as before", name, was.PID, was.CPUs)
	}
	if now := g.calls(); now != calls {
		g.t.Errorf("the plugins were called %d times with Allocate, then %d times", calls, now)
	}
}

// memory is for the next boot.
type memory struct {
	Boot string
	Pods map[string]facts
}

const (
	memoryFile = home + "/memory.json"
	bootID     = "/proc/sys/kernel/random/boot_id"
)

// remember tells the next boot about pods.
func (g guest) remember(names ...string) {
	g.t.Helper()
	text, err := json.Marshal(memory{Boot: said(g.t, bootID), Pods: g.facts(names...)})
	if err == nil {
		err = os.WriteFile(memoryFile, text, 0o644)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// recall returns what the boot before has stored.
func recall(t *testing.T) (m memory) {
	t.Helper()
	if err := json.Unmarshal([]byte(said(t, memoryFile)), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
