package watcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/internal/metric/metrictest"
	"github.com/numalet/numalet/test/scratch"
)

// patience bounds a wait; only a failing test reaches it.
const patience = 20 * time.Second

// host records what a watcher does in its own directory.
type host struct {
	t       *testing.T
	watcher *Watcher
	dir     string
	asked   chan Plugin
	left    chan string          // names
	refuse  chan error           // one error for each attempt to refuse
	endings chan chan<- struct{} // ends a membership
}

// newHost starts a watcher with a long period: what happens comes from events.
func newHost(t *testing.T, period time.Duration, change ...func(*Config)) *host {
	t.Helper()
	parent := scratch.Dir(t)
	h := &host{
		t: t, dir: filepath.Join(parent, "registry"), asked: make(chan Plugin, 100),
		left: make(chan string, 100), refuse: make(chan error, 100),
		endings: make(chan chan<- struct{}, 100),
	}
	if err := os.Mkdir(h.dir, 0o750); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Dir: h.dir, Handlers: map[string]Handler{"test": h.take},
		Period: period, FirstPause: time.Millisecond,
	}
	for _, f := range change {
		f(&cfg)
	}
	w, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	h.watcher = w
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *host) take(_ context.Context, p Plugin) (*Membership, error) {
	h.asked <- p
	select {
	case err := <-h.refuse:
		return nil, err
	default:
	}
	ended := make(chan struct{})
	h.endings <- ended
	return &Membership{Leave: func() { h.left <- p.Name }, Ended: ended}, nil
}

func next[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waiting for %s", what)
		panic("unreachable")
	}
}

// plugin serves Registration.
type plugin struct {
	registerapi.UnimplementedRegistrationServer
	name     string
	outcomes chan *registerapi.RegistrationStatus
	stop     func()
	// hangs has an entry for each call that gets no answer.
	hangs chan string
}

// hang waits until the caller gives up, if this call gets no answer. Its error is the call's: the
// deadline ends here a moment before it does there, and an answer could still arrive.
func (p *plugin) hang(ctx context.Context, rpc string) error {
	select {
	case next := <-p.hangs:
		if next == rpc {
			<-ctx.Done()
			return ctx.Err()
		}
		p.hangs <- next
	default:
	}
	return nil
}

func (p *plugin) GetInfo(ctx context.Context, _ *registerapi.InfoRequest) (
	*registerapi.PluginInfo, error) {
	if err := p.hang(ctx, "GetInfo"); err != nil {
		return nil, err
	}
	return &registerapi.PluginInfo{
		Type: "test", Name: p.name, SupportedVersions: []string{"v1"},
	}, nil
}

func (p *plugin) NotifyRegistrationStatus(
	ctx context.Context, outcome *registerapi.RegistrationStatus,
) (*registerapi.RegistrationStatusResponse, error) {
	if err := p.hang(ctx, "NotifyRegistrationStatus"); err != nil {
		return nil, err
	}
	p.outcomes <- outcome
	return &registerapi.RegistrationStatusResponse{}, nil
}

// plugin serves a plugin of that name on a socket below the directory.
func (h *host) plugin(name, socket string, hangs ...string) *plugin {
	h.t.Helper()
	listener, err := net.Listen("unix", filepath.Join(h.dir, socket))
	if err != nil {
		h.t.Fatal(err)
	}
	p := &plugin{
		name: name, outcomes: make(chan *registerapi.RegistrationStatus, 100),
		hangs: make(chan string, len(hangs)),
	}
	for _, rpc := range hangs {
		p.hangs <- rpc
	}
	server := grpc.NewServer(grpc.WaitForHandlers(true))
	registerapi.RegisterRegistrationServer(server, p)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(listener); err != nil {
			h.t.Error(err)
		}
	}()
	p.stop = func() {
		server.Stop()
		<-done
	}
	h.t.Cleanup(p.stop)
	return p
}

func TestSocketsThatCount(t *testing.T) {
	h := newHost(t, time.Hour)
	if err := errors.Join(
		os.MkdirAll(filepath.Join(h.dir, "driver", "deep"), 0o750),
		os.Mkdir(filepath.Join(h.dir, ".hidden"), 0o750),
		os.WriteFile(filepath.Join(h.dir, "file.sock"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	h.plugin("dot", ".dot.sock")
	h.plugin("hidden", ".hidden/x.sock")
	top := h.plugin("top", "top.sock")
	deep := h.plugin("deep", "driver/deep/reg")
	found := map[string]Plugin{}
	for range 2 {
		p := next(t, "a plugin to be asked", h.asked)
		found[p.Name] = p
	}
	for name, socket := range map[string]string{"top": "top.sock", "deep": "driver/deep/reg"} {
		path := filepath.Join(h.dir, socket)
		p := found[name]
		if p.Socket != path || p.Endpoint != path || len(p.Versions) != 1 || p.Type != "test" {
			t.Errorf("%s was found as %+v", name, p)
		}
	}
	for _, p := range []*plugin{top, deep} {
		if outcome := next(t, "the outcome", p.outcomes); !outcome.PluginRegistered {
			t.Errorf("%s is told %v", p.name, outcome)
		}
	}
	if len(h.asked) > 0 {
		t.Errorf("%+v was asked too", <-h.asked)
	}
}

func TestRefusedPluginIsAskedAgain(t *testing.T) {
	h := newHost(t, time.Hour)
	for range 3 {
		h.refuse <- errors.New("not today")
	}
	p := h.plugin("a", "a.sock")
	for range 3 {
		outcome := next(t, "a refusal", p.outcomes)
		const want = "RegisterPlugin error -- plugin registration failed with err: not today"
		if outcome.PluginRegistered || outcome.Error != want {
			t.Errorf("the plugin is told %v", outcome)
		}
	}
	if outcome := next(t, "success", p.outcomes); !outcome.PluginRegistered {
		t.Errorf("the plugin is told %v", outcome)
	}
}

// A plugin that does not answer is given up after the deadline of that step, and asked again until
// it answers. A plugin that does not take the outcome is admitted nevertheless.
func TestPluginThatHangs(t *testing.T) {
	calls := make(chan string, 100)
	h := newHost(t, time.Hour, func(c *Config) {
		c.Deadlines = Deadlines{
			Dial: 50 * time.Millisecond, Info: 50 * time.Millisecond, Notify: 50 * time.Millisecond,
		}
		c.Called = func(_ Plugin, rpc string, took time.Duration, err error) {
			if errors.Is(err, context.DeadlineExceeded) ||
				status.Code(err) == codes.DeadlineExceeded {
				calls <- fmt.Sprintf("%s late, not before its deadline: %t", rpc,
					took >= 50*time.Millisecond)
			}
		}
	})
	expect := func(want string) {
		t.Helper()
		for next(t, want, calls) != want { // on a slow machine other calls may be late too
		}
	}
	listener, err := net.Listen("unix", filepath.Join(h.dir, "silent.sock")) // accepts nobody
	if err != nil {
		t.Fatal(err)
	}
	expect("Dial late, not before its deadline: true")
	listener.Close()

	p := h.plugin("a", "a.sock", "GetInfo", "GetInfo", "NotifyRegistrationStatus")
	expect("GetInfo late, not before its deadline: true")
	expect("GetInfo late, not before its deadline: true")
	if asked := next(t, "the plugin to be taken in", h.asked); asked.Name != "a" {
		t.Errorf("%+v is taken in", asked)
	}
	expect("NotifyRegistrationStatus late, not before its deadline: true")
	if len(h.left) > 0 {
		t.Error("it has to leave")
	}
	close(next(t, "the membership", h.endings))
	next(t, "the outcome of the next attempt", p.outcomes)
}

func TestDefaultDeadlines(t *testing.T) {
	got := Deadlines{Info: time.Minute}.WithDefaults()
	want := Deadlines{Dial: 10 * time.Second, Info: time.Minute, Notify: 5 * time.Second}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := (Deadlines{}).WithDefaults().Info; got != time.Second {
		t.Errorf("GetInfo has %s, want the kubelet's second", got)
	}
}

func TestSocketMadeAnew(t *testing.T) {
	for name, period := range map[string]time.Duration{
		"by events": time.Hour, "by events and reading": 10 * time.Millisecond,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, period)
			for i := range 20 {
				p := h.plugin("a", "a.sock")
				next(t, "the outcome", p.outcomes)
				p.stop() // removes the socket; the next one is made at once
				if i%2 == 0 {
					continue
				}
				for range 2 {
					next(t, "both to leave", h.left)
				}
			}
		})
	}
}

func TestEndedPluginIsAskedAgain(t *testing.T) {
	registry := metrics.NewKubeRegistry()
	h := newHost(t, time.Hour, func(c *Config) { c.Registry = registry })
	counts := func(want ...string) {
		t.Helper()
		var got []string
		for range int(patience / time.Millisecond) {
			got = slices.Sorted(maps.Keys(
				metrictest.Values(t, registry, "plugin_manager_total_plugins")))
			if slices.Equal(got, want) {
				return
			}
			time.Sleep(time.Millisecond)
		}
		t.Errorf("the metric counts %q, want %q", got, want)
	}
	path := filepath.Join(h.dir, "a.sock")
	p := h.plugin("a", "a.sock")
	next(t, "the outcome", p.outcomes)
	counts(path+",actual_state_of_world", path+",desired_state_of_world")
	close(next(t, "the membership", h.endings))
	next(t, "the end", h.left)
	next(t, "the second outcome", p.outcomes)
	p.stop()
	next(t, "the second end", h.left)
	counts()
}

func TestDirectoryIsMade(t *testing.T) {
	h := newHost(t, 10*time.Millisecond)
	if err := os.Remove(h.dir); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(h.dir); err == nil {
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the directory is not made again")
		}
	}
	next(t, "the outcome", h.plugin("a", "a.sock").outcomes)
}

func TestNewNeedsADirectory(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("an empty directory is accepted")
	}
}
