package dracheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/numalet/numalet/deviceplugin/check"
	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/dratest"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/test/scratch"
)

const gpu = "gpu.example.com"

var claims = []dra.Claim{
	{Namespace: "team", Name: "a", UID: "uid-a"}, {Namespace: "team", Name: "b", UID: "uid-b"},
}

const spec = `{"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": [
	{"name": "a", "containerEdits": {"env": ["A=1"]}},
	{"name": "b", "containerEdits": {"env": ["B=1"]}}]}`

// checked runs all checks on a driver, and returns the names of those that failed.
func checked(t *testing.T, cfg dratest.Config, change func(*dratest.Driver, *Config)) (
	check.Report, []string) {
	t.Helper()
	cfg.Registry = scratch.Dir(t)
	if cfg.Versions == nil {
		cfg.Versions = append(dra.Services(), healthv1.DRAResourceHealthService)
	}
	d := dratest.Start(t, cfg)
	d.Say(&healthv1.DeviceHealth{
		Device: &healthv1.DeviceIdentifier{PoolName: "pool", DeviceName: "device-0"},
	})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gpu.json"), []byte(spec), 0o600); err != nil {
		t.Fatal(err)
	}
	with := Config{
		Socket: d.Socket, Claims: claims, CDI: []string{dir}, Patience: 5 * time.Second,
		Slices: []resourcev1.ResourceSlice{{Spec: resourcev1.ResourceSliceSpec{
			Driver: gpu, Pool: resourcev1.ResourcePool{Name: "pool"},
			Devices: []resourcev1.Device{{Name: "device-0"}},
		}}},
	}
	if change != nil {
		change(d, &with)
	}
	report, err := Run(t.Context(), with)
	if err != nil {
		t.Fatal(err)
	}
	var bad []string
	for _, r := range report.Results {
		if r.Verdict == check.Failed {
			bad = append(bad, r.Name)
			t.Logf("%s: %s", r.Name, r.Happened)
		}
	}
	return report, bad
}

// A good driver passes every check but those that start it, and is found by its name.
func TestGoodDriver(t *testing.T) {
	report, bad := checked(t, dratest.Config{}, func(_ *dratest.Driver, c *Config) {
		path, err := Find(t.Context(), filepath.Dir(c.Socket), gpu)
		if err != nil || path != c.Socket {
			t.Errorf("found %s: %v", path, err)
		}
		_, err = Find(t.Context(), filepath.Dir(c.Socket), "other.example.com")
		if err == nil || !strings.Contains(err.Error(), "says that it is DRA driver other") {
			t.Errorf("found another: %v", err)
		}
		if err == nil || !strings.Contains(err.Error(), "but there is "+gpu) {
			t.Errorf("it does not say which there are: %v", err)
		}
	})
	if len(bad) > 0 || report.Count(check.Passed) != len(table())-2 || report.Resource != gpu {
		for _, r := range report.Results {
			t.Errorf("%s %s: %s", r.Verdict, r.Name, r.Happened)
		}
	}
}

// Each wrong driver fails the check of its mistake, and no other.
func TestWrongDrivers(t *testing.T) {
	prepared := atomic.Int32{}
	again := func(_ context.Context, c dra.Claim) dra.Answer {
		a := dratest.OneDevice(t.Context(), c)
		if n := prepared.Add(1); n > 2 {
			a.Devices[0].ShareID = fmt.Sprint(n)
		}
		return a
	}
	busy := atomic.Int32{}
	atOnce := func(ctx context.Context, c dra.Claim) dra.Answer {
		defer busy.Add(-1)
		if busy.Add(1) > 1 {
			return dra.Answer{Err: errors.New("busy")}
		}
		time.Sleep(5 * time.Millisecond)
		return dratest.OneDevice(ctx, c)
	}
	unknown := func(_ context.Context, c dra.Claim) error {
		if c.UID != claims[0].UID && c.UID != claims[1].UID {
			return errors.New("never heard of it")
		}
		return nil
	}
	no := func(context.Context, dra.Claim) error { return errors.New("no") }
	var forgetful, once wrongState
	var hanging stuck
	for want, tc := range map[string]struct {
		cfg    dratest.Config
		change func(*dratest.Driver, *Config)
	}{
		"registers":      {cfg: dratest.Config{Versions: []string{"1.0.0"}}},
		"prepares-again": {cfg: dratest.Config{Prepare: again}},
		"unknown-claim":  {cfg: dratest.Config{Unprepare: unknown}},
		"unprepares": {cfg: dratest.Config{Unprepare: func(ctx context.Context, c dra.Claim) error {
			if unknown(ctx, c) != nil {
				return nil
			}
			return no(ctx, c)
		}}},
		"prepares": {cfg: dratest.Config{Edit: func(r *drav1.NodePrepareResourcesResponse) {
			delete(r.Claims, "uid-b")
		}}},
		"prepares-at-once": {cfg: dratest.Config{Prepare: atOnce}},
		"versions":         {cfg: dratest.Config{Unserved: []string{"v1beta1.DRAPlugin"}}},
		"cancelled":        {cfg: dratest.Config{Prepare: hanging.prepare, Unprepare: hanging.unprepare}},
		"agent-restarts":   {cfg: dratest.Config{Prepare: onConnection()}},
		"unprepares-again": {cfg: dratest.Config{Prepare: forgetful.prepare,
			Unprepare: func(ctx context.Context, c dra.Claim) error {
				if forgetful.unprepared(c) {
					return errors.New("it is not prepared")
				}
				return forgetful.unprepare(ctx, c)
			}}},
		"prepares-anew": {cfg: dratest.Config{Unprepare: once.unprepare,
			Prepare: func(ctx context.Context, c dra.Claim) dra.Answer {
				if once.unprepared(c) {
					return dra.Answer{Err: errors.New("it was unprepared")}
				}
				return once.prepare(ctx, c)
			}}},
		"cdi": {change: func(_ *dratest.Driver, c *Config) {
			c.CDI = []string{t.TempDir()}
		}},
		"slices": {change: func(_ *dratest.Driver, c *Config) {
			c.Slices[0].Spec.Pool.Name = "other"
		}},
		"health": {cfg: dratest.Config{Silent: true},
			change: func(_ *dratest.Driver, c *Config) { c.Patience = time.Second }},
	} {
		_, bad := checked(t, tc.cfg, tc.change)
		if len(bad) != 1 || bad[0] != want {
			t.Errorf("failed %v, want %s", bad, want)
		}
	}
}

// Each group stands together, so that its heading comes once.
func TestGroups(t *testing.T) {
	var groups []string
	for _, e := range table() {
		if n := len(groups); n == 0 || groups[n-1] != e.Group {
			if slices.Contains(groups, e.Group) {
				t.Errorf("%s comes again with %s", e.Group, e.Name)
			}
			groups = append(groups, e.Group)
		}
	}
}

// Only makes the named checks and those that they need.
func TestOnly(t *testing.T) {
	report, bad := checked(t, dratest.Config{}, func(_ *dratest.Driver, c *Config) {
		c.Only = []string{"cdi"}
	})
	var names []string
	for _, r := range report.Results {
		names = append(names, r.Name)
	}
	if want := []string{"registers", "prepares", "cdi"}; len(bad) > 0 || !slices.Equal(names, want) {
		t.Errorf("made %q, want %q; failed %q", names, want, bad)
	}
}

// wrongState remembers which claims were unprepared and not prepared since.
type wrongState struct {
	mu   sync.Mutex
	gone map[types.UID]bool
}

func (s *wrongState) set(c dra.Claim, gone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone == nil {
		s.gone = map[types.UID]bool{}
	}
	s.gone[c.UID] = gone
}

func (s *wrongState) unprepared(c dra.Claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone[c.UID]
}

func (s *wrongState) prepare(ctx context.Context, c dra.Claim) dra.Answer {
	s.set(c, false)
	return dratest.OneDevice(ctx, c)
}

func (s *wrongState) unprepare(_ context.Context, c dra.Claim) error {
	s.set(c, true)
	return nil
}

// stuck prepares nothing any more after a call was cancelled, until the claims are unprepared.
type stuck struct{ broken atomic.Bool }

func (s *stuck) prepare(ctx context.Context, c dra.Claim) dra.Answer {
	if !await.For(ctx, 30*time.Millisecond) {
		s.broken.Store(true)
	}
	if s.broken.Load() {
		return dra.Answer{Err: errors.New("it is being prepared")}
	}
	return dratest.OneDevice(ctx, c)
}

func (s *stuck) unprepare(context.Context, dra.Claim) error {
	s.broken.Store(false)
	return nil
}

// onConnection prepares a claim again only on the connection where it was prepared first.
func onConnection() func(context.Context, dra.Claim) dra.Answer {
	var mu sync.Mutex
	on := map[types.UID]context.Context{}
	return func(ctx context.Context, c dra.Claim) dra.Answer {
		mu.Lock()
		defer mu.Unlock()
		if was := on[c.UID]; was != nil && !dratest.SameConnection(was, ctx) {
			delete(on, c.UID)
			return dra.Answer{Err: errors.New("it is another connection's")}
		}
		on[c.UID] = ctx
		return dratest.OneDevice(ctx, c)
	}
}

// Without claims, slices and a command the checks that need them say so.
func TestLeftOut(t *testing.T) {
	report, bad := checked(t, dratest.Config{Versions: []string{"v1beta1.DRAPlugin"}},
		func(_ *dratest.Driver, c *Config) { c.Claims = nil })
	if len(bad) > 0 || report.Count(check.Skipped) != 13 || report.Count(check.Warning) != 1 {
		t.Errorf("%v, %s", bad, report.Summary())
	}
}
