package dra_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"
	"k8s.io/klog/v2/ktesting"
	healthv1 "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/numalet/numalet/deviceplugin/dra"
	"github.com/numalet/numalet/deviceplugin/dra/dratest"
	"github.com/numalet/numalet/deviceplugin/watcher"
)

const gpu = "gpu.example.com"

var claimA, claimB = dra.Claim{Namespace: "team", Name: "a", UID: "uid-a"},
	dra.Claim{Namespace: "team", Name: "b", UID: "uid-b"}

// bubble is Drivers in a synctest bubble, with drivers behind connections in memory.
type bubble struct {
	*dra.Drivers
	t    *testing.T
	stop func()

	mu      sync.Mutex // guards the fields below
	serving map[string]*bufconn.Listener
	stalls  []*stall
	gone    []string
	heard   [][]dra.DeviceHealth
	changes int
}

// inBubble runs a test.
func inBubble(t *testing.T, test func(b *bubble)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bubble{t: t, serving: map[string]*bufconn.Listener{}}
		drivers, err := dra.New(dra.Config{
			Changed: func() { b.note(func() { b.changes++ }) },
			Gone:    func(driver string) { b.note(func() { b.gone = append(b.gone, driver) }) },
			Health: func(_ string, devices []dra.DeviceHealth) {
				b.note(func() { b.heard = append(b.heard, devices) })
			},
		}.Dialling(b.dial))
		if err != nil {
			t.Fatal(err)
		}
		b.Drivers = drivers
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(ctx)
		var running sync.WaitGroup
		running.Go(func() {
			if err := drivers.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		b.stop = func() {
			cancel()
			running.Wait()
		}
		defer b.stop()
		test(b)
	})
}

func (b *bubble) note(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bubble) dial(ctx context.Context, path string) (net.Conn, error) {
	b.mu.Lock()
	l := b.serving[path]
	b.mu.Unlock()
	if l == nil {
		return nil, errors.New("dial unix " + path + ": connect: connection refused")
	}
	conn, err := l.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	s := &stall{Conn: conn, dead: make(chan struct{}), closed: make(chan struct{})}
	b.note(func() { b.stalls = append(b.stalls, s) })
	return s, nil
}

// serve serves a driver under a path.
func (b *bubble) serve(path string, d *dratest.Driver) {
	l := bufconn.Listen(1 << 20)
	b.note(func() { b.serving[path] = l })
	d.Serve(l)
}

// place returns the path of a file that stands for a socket.
func (b *bubble) place() string {
	path := filepath.Join(b.t.TempDir(), "a")
	b.replace(path)
	return path
}

// replace puts another file into the place of one that stands for a socket.
func (b *bubble) replace(path string) {
	b.t.Helper()
	if err := os.WriteFile(path+".new", nil, 0o600); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		b.t.Fatal(err)
	}
}

// kill ends a driver as a killed process does, and waits until that is known.
func (b *bubble) kill(path string, d *dratest.Driver) {
	b.note(func() { delete(b.serving, path) })
	d.Kill()
	synctest.Wait()
}

// stallAll makes the connections so far dead without being closed, and returns how many they are.
func (b *bubble) stallAll() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.stalls {
		s.die()
	}
	return len(b.stalls)
}

// register admits the driver of a path, and waits until it is connected if it serves.
func (b *bubble) register(path string, versions ...string) (leave func()) {
	b.t.Helper()
	if versions == nil {
		versions = []string{drav1.DRAPluginService}
	}
	member, err := b.Handler()(b.t.Context(), watcher.Plugin{
		Type: registerapi.DRAPlugin, Name: gpu, Endpoint: path, Versions: versions,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	return member.Leave
}

// expect compares after everything has come to rest.
func expect[T comparable](b *bubble, what string, got func() T, want T) {
	b.t.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if is := got(); is != want {
		b.t.Errorf("%s: %v, want %v", what, is, want)
	}
}

// prepare prepares a claim, which has to succeed.
func (b *bubble) prepare(c dra.Claim) error {
	answers, err := b.Prepare(b.t.Context(), gpu, []dra.Claim{c})
	return errors.Join(err, answers[c.UID].Err)
}

// stall is a connection that can stop to carry anything, without an end.
type stall struct {
	net.Conn
	once, end    sync.Once
	dead, closed chan struct{}
}

func (s *stall) die() { s.once.Do(func() { close(s.dead) }) }

func (s *stall) Read(p []byte) (int, error) {
	n, err := s.Conn.Read(p)
	select {
	case <-s.dead:
		<-s.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (s *stall) Write(p []byte) (int, error) {
	select {
	case <-s.dead:
		return len(p), nil
	default:
		return s.Conn.Write(p)
	}
}

func (s *stall) Close() error {
	s.end.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

func sick(name string) *healthv1.DeviceHealth {
	return &healthv1.DeviceHealth{
		Device: &healthv1.DeviceIdentifier{PoolName: "pool", DeviceName: name},
		Health: healthv1.HealthStatus_UNHEALTHY, Message: "too hot", HealthCheckTimeoutSeconds: 7,
	}
}

// patience bounds a wait outside bubbles; only a failing test reaches it.
const patience = 20 * time.Second
