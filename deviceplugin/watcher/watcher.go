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

	"github.com/numalet/numalet/topology/metric"
)

// Config is what New needs.
type Config struct {
	// Dir is the directory of the sockets, searched with those below it. It is created when
	// missing.
	Dir string
	// Handlers take plugins in, by plugin type. Other types are told that nobody takes them.
	Handlers map[string]Handler
	// Period is how often the directory is read when nothing happens; 0 is one second.
	Period time.Duration
	// FirstPause is the time before a second attempt at a socket; it doubles with each further
	// one, up to two minutes. 0 is half a second.
	FirstPause time.Duration
	// Deadlines bounds the steps of a registration; zero fields get their default.
	Deadlines Deadlines
	// Stats is who hears of every message over connections to a plugin's socket. It must not block.
	// Nil is nobody.
	Stats func(socket string) stats.Handler
	// Called hears of every call to a plugin, be it to connect: p is what the plugin had said about
	// itself by then, in the beginning nothing. Nil is nobody.
	Called func(p Plugin, rpc string, took time.Duration, err error)
	// Registry gets the metric of how many plugins there are; nil for none.
	Registry metrics.KubeRegistry
}

// Deadlines bounds the steps of a registration. The defaults are the kubelet's.
type Deadlines struct {
	// Dial is how long a plugin may take to begin to serve its socket; 10 s.
	Dial time.Duration
	// Info is for GetInfo; 1 s.
	Info time.Duration
	// Notify is for NotifyRegistrationStatus; 5 s.
	Notify time.Duration
}

// WithDefaults has the defaults for zero fields.
func (d Deadlines) WithDefaults() Deadlines {
	return Deadlines{
		Dial:   cmp.Or(d.Dial, 10*time.Second),
		Info:   cmp.Or(d.Info, time.Second),
		Notify: cmp.Or(d.Notify, 5*time.Second),
	}
}

// Plugin is what a plugin says about itself.
type Plugin struct {
	// Type is "DevicePlugin", "CSIPlugin", "DRAPlugin" or what else there may be.
	Type string
	Name string
	// Endpoint is the path of the socket on which the plugin does its work: the one it named, or
	// Socket.
	Endpoint string
	Versions []string
	// Socket is the path of the socket that was found.
	Socket string
}

// Handler takes a plugin in. The error is told to the plugin, and the attempt is made again later.
// It must not wait for longer than ctx.
type Handler func(ctx context.Context, p Plugin) (*Membership, error)

// Membership is a plugin that was taken in.
type Membership struct {
	// Unheard hears that the plugin did not take the news of its registration; nil: nobody does.
	Unheard func(error)
	// Leave is called when the socket has gone or was made anew. It does not block.
	Leave func()
	// Ended is closed when the plugin no longer answers; it is then asked again.
	Ended <-chan struct{}
}

// Watcher follows one directory.
type Watcher struct {
	cfg Config
	// plugins are the sockets that were found, and those of them that are registered.
	plugins *metrics.GaugeVec
}

// States of a socket, by their names in the metric.
const (
	isFound      = "desired_state_of_world"
	isRegistered = "actual_state_of_world"
)

// New returns a watcher; Run lets it work. The error is that of an empty Dir, or of metrics that are
// registered twice.
func New(cfg Config) (*Watcher, error) {
	if cfg.Dir == "" {
		return nil, errors.New("plugin watcher: Dir is empty: name the plugins_registry directory")
	}
	cfg.Period = cmp.Or(cfg.Period, time.Second)
	cfg.FirstPause = cmp.Or(cfg.FirstPause, 500*time.Millisecond)
	cfg.Deadlines = cfg.Deadlines.WithDefaults()
	if cfg.Called == nil {
		cfg.Called = func(Plugin, string, time.Duration, error) {}
	}
	var s metric.Set
	w := &Watcher{cfg: cfg, plugins: s.Gauges("plugin_manager_total_plugins",
		"Sockets in the plugin registry, and those of them whose plugin is registered.",
		"socket_path", "state")}
	return w, s.Register(cfg.Registry)
}

// Run follows the directory until ctx is done. The error is that of a directory that cannot be
// made.
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
		// Reading the directory each period finds everything, a little later.
		log.Info("Plugin registry is read without events", "period", w.cfg.Period, "err", err)
		notify = &fsnotify.Watcher{}
	} else {
		defer notify.Close()
		f.notify = notify
	}
	tick := time.NewTicker(w.cfg.Period)
	defer tick.Stop()
	for {
		f.reconcile(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case event := <-notify.Events:
			f.heard(event)
		case err := <-notify.Errors:
			log.Info("Events of the plugin registry were lost", "err", err)
		}
	}
}

// followed is what Run knows of the directory.
type followed struct {
	watcher *Watcher
	notify  *fsnotify.Watcher // nil without events
	group   *sync.WaitGroup
	sockets map[string]*socket // by path
	trouble string             // of the last reading, to tell it once
}

// heard notes that a socket was removed: one that is made anew at once can have the inode and the
// time of the older one.
func (f *followed) heard(event fsnotify.Event) {
	if s := f.sockets[event.Name]; s != nil && event.Has(fsnotify.Remove|fsnotify.Rename) {
		s.end()
	}
}

// reconcile makes the goroutines agree with the sockets that are there.
func (f *followed) reconcile(ctx context.Context) {
	found, err := f.scan()
	if err != nil {
		if f.trouble != err.Error() {
			f.trouble = err.Error()
			klog.FromContext(ctx).Info("Plugin registry cannot be read", "err", err)
		}
		return
	}
	f.trouble = ""
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

// follow starts the goroutine of a socket; it begins when that of its predecessor has ended.
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
