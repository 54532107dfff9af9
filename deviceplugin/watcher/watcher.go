package watcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc/stats"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/metric"
)

// Registry is the kubelet's name for the directory, in its root.
const Registry = "plugins_registry"

// Config configures New.
type Config struct {
	// Dir is searched for sockets, with all directories below. It is created if missing.
	Dir string
	// Handlers admit plugins, by plugin type. Plugins of other types are refused.
	Handlers map[string]Handler
	// Period is the time between scans without events; 0: one second.
	Period time.Duration
	// FirstPause is the pause before the second attempt at a socket. It doubles with each further
	// attempt, up to two minutes; 0: half a second.
	FirstPause time.Duration
	// Deadlines bounds the steps of a registration; zero fields get their default.
	Deadlines Deadlines
	// Stats returns the handler that sees every message over connections to a plugin's socket. It
	// must not block. Optional.
	Stats func(socket string) stats.Handler
	// Called is told of every call to a plugin and of each attempt to connect. p is what the plugin
	// has said of itself so far, at first nothing. Optional.
	Called func(p Plugin, rpc string, took time.Duration, err error)
	// Registry takes the metric of the number of plugins; nil: none.
	Registry metrics.KubeRegistry
}

// Deadlines bound the steps of a registration. The defaults are the kubelet's.
type Deadlines struct {
	// Dial bounds the time until a plugin serves its socket; 10 s.
	Dial time.Duration
	// Info bounds GetInfo; 1 s.
	Info time.Duration
	// Notify bounds NotifyRegistrationStatus; 5 s.
	Notify time.Duration
}

// WithDefaults replaces zero fields by their defaults.
func (d Deadlines) WithDefaults() Deadlines {
	return Deadlines{
		Dial:   cmp.Or(d.Dial, 10*time.Second),
		Info:   cmp.Or(d.Info, time.Second),
		Notify: cmp.Or(d.Notify, 5*time.Second),
	}
}

// Plugin is a plugin's description of itself.
type Plugin struct {
	// Type is "DevicePlugin", "CSIPlugin", "DRAPlugin" or another one.
	Type string
	Name string
	// Endpoint is the path of the socket for the plugin's real service: the one it named, or
	// Socket.
	Endpoint string
	Versions []string
	// Socket is the path of the socket in the directory.
	Socket string
}

// Handler admits a plugin. An error is told to the plugin, and the attempt is repeated later. It
// must not block longer than ctx.
type Handler func(ctx context.Context, p Plugin) (*Membership, error)

// InvalidError is the error of a handler for what a plugin says of itself. The kubelet words it
// differently when it tells the plugin.
type InvalidError struct{ Err error }

func (e *InvalidError) Error() string { return e.Err.Error() }

func (e *InvalidError) Unwrap() error { return e.Err }

// Membership is an admitted plugin.
type Membership struct {
	// Unheard is called if NotifyRegistrationStatus failed after the plugin was admitted. Optional.
	Unheard func(error)
	// Leave is called when the socket has gone or was made anew, or the plugin has ended. It must
	// not block.
	Leave func()
	// Ended is closed when the plugin no longer answers; the watcher then asks it again.
	Ended <-chan struct{}
}

// Watcher follows one directory.
type Watcher struct {
	cfg Config
	// plugins has a series for each found socket, and one for each registered one.
	plugins *metrics.GaugeVec
	// first and again have a place for each attempt at the same time, the first at a socket and later
	// ones: sockets that never answer do not keep others from being asked.
	first, again chan struct{}
}

// Values of the metric's label state.
const (
	isFound      = "desired_state_of_world"
	isRegistered = "actual_state_of_world"
)

// The bounds of attempts at the same time.
const (
	firstAtOnce = 256
	againAtOnce = 16
)

// New returns a watcher for Run. It fails if Dir is empty or the metrics are registered twice.
func New(cfg Config) (*Watcher, error) {
	if cfg.Dir == "" {
		return nil, errors.New("plugin watcher: Dir is empty: name the " + Registry + " directory")
	}
	cfg.Period = cmp.Or(cfg.Period, time.Second)
	cfg.FirstPause = cmp.Or(cfg.FirstPause, 500*time.Millisecond)
	cfg.Deadlines = cfg.Deadlines.WithDefaults()
	if cfg.Called == nil {
		cfg.Called = func(Plugin, string, time.Duration, error) {}
	}
	var s metric.Set
	w := &Watcher{cfg: cfg, first: make(chan struct{}, firstAtOnce),
		again: make(chan struct{}, againAtOnce), plugins: s.Gauges("plugin_manager_total_plugins",
			"Sockets in the plugin registry, and those of them whose plugin is registered.",
			"socket_path", "state")}
	return w, s.Register(cfg.Registry)
}

// Run follows the directory until ctx is done. It fails if the directory cannot be made.
func (w *Watcher) Run(ctx context.Context) error {
	if err := os.MkdirAll(w.cfg.Dir, 0o750); err != nil {
		return fmt.Errorf("make plugin registry directory: %w", err)
	}
	log := klog.FromContext(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	f := &followed{watcher: w, group: &group, sockets: map[string]*socket{}}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		// The scans find everything a little later.
		log.Info("Plugin registry is read without events", "period", w.cfg.Period, "err", err)
		notify = &fsnotify.Watcher{}
	} else {
		defer notify.Close()
		f.notify = notify
	}
	tick := time.NewTicker(w.cfg.Period)
	defer tick.Stop()
	for began := time.Now(); ; began = time.Now() {
		f.reconcile(ctx)
		if !f.await(ctx, rests*time.Since(began), tick.C, notify) {
			return nil
		}
	}
}

// rests is how many times as long as a scan the pause after it is: events without end leave the most
// of a CPU to others.
const rests = 20

// await returns when the next scan is due: at the tick or after an event, but not before the pause is
// over. That scan sees what happens meanwhile. It returns false once ctx is done.
func (f *followed) await(ctx context.Context, pause time.Duration, tick <-chan time.Time,
	notify *fsnotify.Watcher) bool {
	rest, due := time.After(pause), false
	for rest != nil || !due {
		select {
		case <-ctx.Done():
			return false
		case <-rest:
			rest = nil
		case <-tick:
			due = true
		case event := <-notify.Events:
			f.heard(event)
			due = true
		case err := <-notify.Errors:
			klog.FromContext(ctx).Info("Events of the plugin registry were lost", "err", err)
			due = true
		}
	}
	return true
}

// followed is Run's state of the directory.
type followed struct {
	watcher *Watcher
	notify  *fsnotify.Watcher // nil without events
	group   *sync.WaitGroup
	sockets map[string]*socket          // by path
	wrong   complaint.Complaint[string] // with the last scan
}

// heard notes the removal of a socket: one made anew at once can have the inode and the time of the
// old one.
func (f *followed) heard(event fsnotify.Event) {
	if s := f.sockets[event.Name]; s != nil && event.Has(fsnotify.Remove|fsnotify.Rename) {
		s.end()
	}
}

// reconcile starts and ends goroutines to match the sockets in the directory.
func (f *followed) reconcile(ctx context.Context) {
	found, err := f.scan()
	if f.wrong.Begins(complaint.Of(err)) {
		klog.FromContext(ctx).Info("Plugin registry cannot be read", "err", err)
	}
	if err != nil {
		return
	}
	for path, s := range f.sockets {
		if _, there := found[path]; there {
			continue
		}
		s.end()
		if s.hasEnded() {
			delete(f.sockets, path)
		}
	}
	for path, id := range found {
		before := f.sockets[path]
		if before != nil && before.id == id {
			continue
		}
		if before != nil {
			before.end()
		}
		f.sockets[path] = f.follow(ctx, path, id, before)
	}
}

// follow starts the goroutine of a socket, which waits for the end of its predecessor's.
func (f *followed) follow(ctx context.Context, path string, id identity, before *socket) *socket {
	ctx, cancel := context.WithCancel(ctx)
	s := &socket{
		watcher: f.watcher, path: path, id: id, cancel: cancel, done: make(chan struct{}),
	}
	f.group.Go(func() {
		defer close(s.done)
		defer cancel()
		if before != nil {
			<-before.done
		}
		s.run(ctx)
	})
	return s
}
