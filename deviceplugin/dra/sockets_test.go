package dra_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/dratest"
	"github.com/numalet/numalet/deviceplugin/watcher"
	"github.com/numalet/numalet/deviceplugin/watcher/watchertest"
	"github.com/numalet/numalet/test/scratch"
)

// node is Drivers behind a watcher of a plugin registry, with real sockets.
type node struct {
	*dra.Drivers
	t        *testing.T
	registry string
	unusable atomic.Int32 // how often a driver was seen to be unusable after a change
}

func newNode(t *testing.T, registry metrics.KubeRegistry) *node {
	t.Helper()
	n := &node{t: t}
	var err error
	n.Drivers, err = dra.New(dra.Config{Registry: registry, Changed: func() {
		if !n.Usable(gpu) {
			n.unusable.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.registry = watchertest.Watch(t, registerapi.DRAPlugin, n.Handler(), n.Run)
	return n
}

func (n *node) eventually(what string, is func() bool) {
	n.t.Helper()
	for until := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			n.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// prepare prepares a claim.
func (n *node) prepare(c dra.Claim) error {
	answers, err := n.Prepare(n.t.Context(), gpu, []dra.Claim{c})
	return errors.Join(err, answers[c.UID].Err)
}

// A driver is served by the first service of its own list that both sides know, and its calls are
// listed and measured.
func TestServices(t *testing.T) {
	for _, services := range [][]string{
		{drav1.DRAPluginService, drav1beta1.DRAPluginService},
		{"v1.Other", drav1beta1.DRAPluginService, drav1.DRAPluginService},
	} {
		registry := metrics.NewKubeRegistry()
		n := newNode(t, registry)
		d := dratest.Start(t, dratest.Config{Registry: n.registry, Versions: services})
		n.eventually("a usable driver", func() bool { return n.Usable(gpu) })
		answers, err := n.Prepare(t.Context(), gpu, []dra.Claim{claimA, claimB})
		if err != nil || len(answers) != 2 || answers["uid-b"].Devices[0].CDI[0] != "example.com/gpu=b" {
			t.Errorf("prepared: %v, %v", answers, err)
		}
		if calls := d.Calls(); len(calls) != 1 || len(calls[0].Claims) != 2 ||
			calls[0].Claims[0] != claimA {
			t.Errorf("calls %+v", calls)
		}
		errs, err := n.Unprepare(t.Context(), gpu, []dra.Claim{claimB, claimA})
		if err != nil || len(errs) != 2 || errs["uid-a"] != nil || len(d.Prepared()) > 0 {
			t.Errorf("unprepared: %v, %v", errs, err)
		}
		d.Fault(dratest.Prepare, dratest.Fault{Err: status.Error(codes.Internal, "no\nluck")})
		const want = "NodePrepareResources: rpc error: code = Internal desc = no luck"
		if err := n.prepare(claimA); err == nil || err.Error() != want {
			t.Errorf("a call that failed: %v", err)
		}
		list := n.List()
		used := services[len(services)-2]
		if len(list) != 1 || len(list[0].Instances) != 1 || list[0].AwaySince != nil {
			t.Fatalf("listed %+v", list)
		}
		in, calls := list[0].Instances[0], list[0].Calls["NodePrepareResources"]
		if in.Service != used || !in.Connected || !in.Called || in.Endpoint != d.Endpoint ||
			in.Socket != d.Socket || calls.All != 2 || calls.Failed != 1 || calls.LastSeconds <= 0 ||
			list[0].LastError != want || list[0].LastErrorAt == nil {
			t.Errorf("listed %+v", list[0])
		}
		method := "/k8s.io.kubelet.pkg.apis.dra." + strings.TrimSuffix(used, ".DRAPlugin") +
			".DRAPlugin/NodePrepareResources"
		got := counts(t, registry)
		if got[gpu+",Internal,"+method] != 1 || got[gpu+",OK,"+method] != 1 {
			t.Errorf("counted %v", got)
		}
	}
}

// counts returns the numbers of measured calls by driver, code and method.
func counts(t *testing.T, from metrics.Gatherer) map[string]uint64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]uint64{}
	for _, f := range families {
		if f.GetName() != "dra_grpc_operations_duration_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			h := m.GetHistogram()
			out[labels["driver_name"]+","+labels["grpc_status_code"]+","+labels["method_name"]] =
				h.GetSampleCount()
			if b := h.GetBucket(); len(b) != 15 || b[0].GetUpperBound() != .1 {
				t.Errorf("buckets %v", b)
			}
		}
	}
	return out
}

// A plugin that cannot be registered is told why, in the kubelet's words where it has some.
func TestRefused(t *testing.T) {
	n := newNode(t, nil)
	d := dratest.Start(t, dratest.Config{Registry: n.registry, Versions: []string{"1.0.0"}})
	n.eventually("an answer", func() bool { return len(d.Notified()) > 0 })
	want := fmt.Sprintf("RegisterPlugin error -- plugin validation failed with err: invalid "+
		"supported gRPC versions of DRA driver plugin %s at endpoint %s: none of services supported "+
		`by the plugin (["1.0.0"]) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.DRAPlugin"])`,
		gpu, d.Endpoint)
	if notice := d.Notified()[0]; notice.PluginRegistered || notice.Error != want {
		t.Errorf("told %v\nwant %s", notice, want)
	}
	drivers, err := dra.New(dra.Config{})
	if err != nil {
		t.Fatal(err)
	}
	v1 := []string{drav1.DRAPluginService}
	for name, tc := range map[string]struct {
		found watcher.Plugin
		want  string
	}{
		"no services": {watcher.Plugin{Name: gpu, Endpoint: "/a"},
			"empty list of supported gRPC services (aka supported versions)"},
		"no name":   {watcher.Plugin{Endpoint: "/a", Versions: v1}, `the name "" of the DRA driver`},
		"odd name":  {watcher.Plugin{Name: "GPU", Endpoint: "/a", Versions: v1}, `the name "GPU"`},
		"long name": {watcher.Plugin{Name: strings.Repeat("x", 64), Versions: v1}, "may have 63"},
		"relative": {watcher.Plugin{Name: gpu, Endpoint: "a.sock", Versions: v1},
			`the endpoint "a.sock" of DRA driver plugin gpu.example.com is invalid`},
		"long path": {watcher.Plugin{Name: gpu, Endpoint: "/" + strings.Repeat("a", 107), Versions: v1},
			"unix sockets allow 107"},
	} {
		_, err := drivers.Handler()(t.Context(), tc.found)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// Two plugins cannot have one endpoint, and a driver cannot have plugins without end.
func TestInstancesAreBounded(t *testing.T) {
	drivers, err := dra.New(dra.Config{})
	if err != nil {
		t.Fatal(err)
	}
	register := func(endpoint string) error {
		_, err := drivers.Handler()(t.Context(), watcher.Plugin{
			Name: gpu, Endpoint: endpoint, Versions: []string{drav1.DRAPluginService},
		})
		return err
	}
	if err := register("/a"); err != nil {
		t.Fatal(err)
	}
	const want = "endpoint /a already registered for DRA driver plugin gpu.example.com"
	if err := register("/a"); err == nil || err.Error() != want {
		t.Errorf("the second on an endpoint: %v", err)
	}
	for i := range 15 {
		if err := register(fmt.Sprintf("/%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := register("/one/more"); err == nil || !strings.Contains(err.Error(), "has 16 instances") {
		t.Errorf("one too many: %v", err)
	}
}

// Drivers that have left are remembered for people, and not without end.
func TestRememberedDriversAreBounded(t *testing.T) {
	inBubble(t, func(b *bubble) {
		for i := range 200 {
			member, err := b.Handler()(t.Context(), watcher.Plugin{
				Name: fmt.Sprintf("driver-%d", i), Endpoint: "/a",
				Versions: []string{drav1.DRAPluginService},
			})
			if err != nil {
				t.Fatal(err)
			}
			member.Leave()
			time.Sleep(time.Minute)
		}
		list := b.List()
		if len(list) > 65 || list[len(list)-1].Name != "driver-199" || list[0].AwaySince == nil {
			t.Errorf("%d drivers are listed, the last is %+v", len(list), list[len(list)-1])
		}
	})
}

// An update of a driver, the next plugin before the last one ends, loses no call and is never seen
// as a driver that is away.
func TestRollingUpdate(t *testing.T) {
	n := newNode(t, nil)
	dir := scratch.Dir(t)
	start := func(i int) *dratest.Driver {
		return dratest.Start(t, dratest.Config{
			Registry: n.registry, Dir: dir, Instance: fmt.Sprint(i),
		})
	}
	last := start(0)
	n.eventually("the first plugin", func() bool { return n.Usable(gpu) })
	n.unusable.Store(0)
	ctx, cancel := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	calls := atomic.Int32{}
	for _, c := range []dra.Claim{claimA, claimB} {
		calling.Go(func() {
			for ctx.Err() == nil {
				if err := n.prepare(c); err != nil {
					t.Errorf("a call during the update: %v", err)
					return
				}
				calls.Add(1)
			}
		})
	}
	for i := range 5 {
		next := start(i + 1)
		n.eventually("the next plugin", func() bool { return len(next.Calls()) > 0 })
		last.Stop()
		n.eventually("the last one to have left", func() bool { return len(n.List()[0].Instances) == 1 })
		last = next
	}
	cancel()
	calling.Wait()
	if n.unusable.Load() > 0 || calls.Load() == 0 {
		t.Errorf("it was unusable %d times, in %d calls", n.unusable.Load(), calls.Load())
	}
}

// A driver that was killed is registered anew with its sockets, or reached again behind the old
// ones; one whose socket in the registry was removed has left.
func TestRestart(t *testing.T) {
	n := newNode(t, nil)
	d := dratest.Start(t, dratest.Config{Registry: n.registry})
	for round := range 3 {
		n.eventually("a usable driver", func() bool { return n.Usable(gpu) })
		if err := n.prepare(claimA); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		d.Kill()
		n.eventually("the end", func() bool { return !n.Usable(gpu) })
		if err := n.prepare(claimA); err == nil || errors.Is(err, dra.ErrNotRegistered) {
			t.Errorf("round %d: a call to a dead plugin: %v", round, err)
		}
		list := n.List()[0]
		if list.AwaySince == nil || !strings.Contains(list.Instances[0].Problem, "refused") {
			t.Errorf("round %d: listed %+v", round, list)
		}
		d.Revive(t)
	}
	n.eventually("a usable driver", func() bool { return n.Usable(gpu) })
	if err := os.Remove(d.Socket); err != nil {
		t.Fatal(err)
	}
	n.eventually("its leave", func() bool { return len(n.List()[0].Instances) == 0 })
	if err := n.prepare(claimA); !errors.Is(err, dra.ErrNotRegistered) {
		t.Errorf("a call to a driver that left: %v", err)
	}
	if names, err := filepath.Glob(n.registry + "/*"); err != nil || len(names) > 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}
