package cgroups

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

// fakeBus is a systemd that records its units and calls.
type fakeBus struct {
	units  map[string]bool
	calls  []string
	result string
	broken error // error of every call for an existing unit
}

func (b *fakeBus) connect(context.Context) (bus, error) { return b, nil }

func (b *fakeBus) Close() {}

func (b *fakeBus) StartTransientUnitContext(_ context.Context, name, _ string,
	properties []dbus.Property, done chan<- string,
) (int, error) {
	if b.units[name] {
		return 0, godbus.Error{Name: "org.freedesktop.systemd1.UnitExists"}
	}
	b.units[name] = true
	b.record("start", name, properties)
	done <- b.result
	return 1, nil
}

func (b *fakeBus) SetUnitPropertiesContext(_ context.Context, name string, _ bool,
	properties ...dbus.Property,
) error {
	b.record("set", name, properties)
	return b.broken
}

func (b *fakeBus) StopUnitContext(_ context.Context, name, _ string, done chan<- string,
) (int, error) {
	if !b.units[name] {
		return 0, godbus.Error{Name: "org.freedesktop.systemd1.NoSuchUnit"}
	}
	if b.broken != nil {
		return 0, b.broken
	}
	delete(b.units, name)
	b.record("stop", name, nil)
	done <- b.result
	return 1, nil
}

// record omits what every slice has.
func (b *fakeBus) record(verb, name string, properties []dbus.Property) {
	call := verb + " " + name
	for _, p := range properties {
		switch p.Name {
		case "Description", "DefaultDependencies",
			"CPUAccounting", "MemoryAccounting", "TasksAccounting":
		default:
			call += fmt.Sprintf(" %s=%v", p.Name, p.Value.Value())
		}
	}
	b.calls = append(b.calls, call)
}

func newSystemdTree(t *testing.T, h host) (*Tree, *fakeBus) {
	tree := h.tree(Config{})
	b := &fakeBus{units: map[string]bool{}, result: "done"}
	tree.driver = Systemd
	tree.systemd = &systemd{unified: true, connect: b.connect}
	return tree, b
}

func TestSystemd(t *testing.T) {
	rewritable(t)
	ctx := t.Context()
	h := newHost(t).unified(allControllers, "/kubepods.slice",
		"/kubepods.slice/kubepods-burstable.slice")
	tree, b := newSystemdTree(t, h)
	if err := tree.EnsureNode(ctx, Resources{Shares: 4096, Memory: gi}); err != nil {
		t.Fatal(err)
	}
	pod := testPod("0c-1", "cpu=333m")
	for range 2 {
		if err := madePod(ctx, tree, pod, PodOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	const slice = "kubepods-burstable-pod0c_1.slice"
	dir := h.mount + "/kubepods.slice/kubepods-burstable.slice/" + slice
	expect(t, dir, "cpu.weight", "13", "cpu.max", "33300 100000", "hugetlb.2MB.max", "0")
	if got := orphans(t, tree, "0c-2"); got != "0c-1" {
		t.Errorf("Orphans() = %s", got)
	}
	for range 2 {
		if err := tree.RemovePod(ctx, types.UID("0c-1")); err != nil {
			t.Fatal(err)
		}
	}
	if exists(dir) {
		t.Error("pod cgroup is still there")
	}
	values := "CPUWeight=13 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=340000 " +
		"MemoryMin=0 MemoryLow=0 MemoryHigh=18446744073709551615"
	want := []string{
		"start kubepods.slice CPUWeight=157 MemoryMax=1073741824",
		"start kubepods-burstable.slice MemoryMax=18446744073709551615 Wants=[kubepods.slice]",
		"start kubepods-besteffort.slice CPUWeight=1 MemoryMax=18446744073709551615 Wants=[kubepods.slice]",
		"start " + slice + " " + values + " Wants=[kubepods-burstable.slice]",
		"set " + slice + " " + values,
		"stop " + slice,
	}
	if diff := cmp.Diff(want, b.calls); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestSystemdRefuses(t *testing.T) {
	h := newHost(t).unified(allControllers)
	tree, b := newSystemdTree(t, h)
	b.result = "failed"
	err := tree.EnsureNode(t.Context(), Resources{Shares: 2})
	if err == nil || !strings.Contains(err.Error(), "start kubepods.slice: systemd says failed") {
		t.Errorf("EnsureNode: %v", err)
	}
	if exists(h.mount + "/kubepods.slice") {
		t.Error("a slice that systemd did not start was made beside it")
	}
}

// An error of systemd for an existing slice is returned, and the cgroup is not removed behind its
// back.
func TestSystemdRefusesLater(t *testing.T) {
	h := newHost(t).unified(allControllers, "/kubepods.slice/kubepods-poda.slice")
	tree, b := newSystemdTree(t, h)
	b.units["kubepods-poda.slice"], b.broken = true, errors.New("no")
	err := madePod(t.Context(), tree, testPod("a", "cpu=2 memory=64Mi"), PodOptions{})
	if err == nil || !strings.Contains(err.Error(), "set properties of kubepods-poda.slice: no") {
		t.Errorf("EnsurePod: %v", err)
	}
	err = tree.RemovePod(t.Context(), "a")
	if err == nil || !strings.Contains(err.Error(), "stop kubepods-poda.slice: no") {
		t.Errorf("RemovePod: %v", err)
	}
	if !exists(h.mount + "/kubepods.slice/kubepods-poda.slice") {
		t.Error("the cgroup was removed though systemd has its slice")
	}
}

func TestSystemdLegacyValues(t *testing.T) {
	s := &systemd{}
	b := &fakeBus{}
	b.record("v1", "", s.values(Resources{
		Shares: 1024, Quota: Unlimited, Period: DefaultPeriod, Memory: 5, Pids: 7,
	}))
	want := "v1  CPUShares=1024 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=18446744073709551615" +
		" MemoryLimit=5 TasksMax=7"
	if b.calls[0] != want {
		t.Errorf("got  %s\nwant %s", b.calls[0], want)
	}
}
