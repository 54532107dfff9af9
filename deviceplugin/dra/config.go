package dra

import (
	"cmp"
	"time"

	"google.golang.org/grpc/stats"
	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/deviceplugin/socket"
)

// Config configures New. Its functions must not block; all are optional.
type Config struct {
	// Changed is called after a driver became usable, or is no longer.
	Changed func()
	// Health is called with each message of a driver's health stream, in order. devices is nil when
	// the stream has ended: nothing is known of the driver's devices from then on.
	Health func(driver string, devices []DeviceHealth)
	// Gone is called when a driver has had no usable plugin for Deadlines.Gone, once until it is
	// usable again.
	Gone func(driver string)
	// Deadlines has the periods; zero fields get their default.
	Deadlines Deadlines
	// Registry takes the metrics; nil: there are none.
	Registry metrics.KubeRegistry
	// Heard returns the handler of the messages on connections to a socket. Optional.
	Heard func(path string) stats.Handler

	// dial replaces the connection to a socket in tests.
	dial socket.Dialer
}

// Deadlines are the kubelet's, but for Dial and Silence, which it has not.
type Deadlines struct {
	// Call bounds a call to a driver; 45 s.
	Call time.Duration
	// Gone is how long a driver may be without a usable plugin; 30 s.
	Gone time.Duration
	// Stream is the pause before a health stream is begun again; 5 s.
	Stream time.Duration
	// Dial bounds an attempt to connect; 10 s.
	Dial time.Duration
	// Silence is after how long without calls a connection is looked at; 5 min.
	Silence time.Duration
}

func (d Deadlines) withDefaults() Deadlines {
	return Deadlines{
		Call:    cmp.Or(d.Call, 45*time.Second),
		Gone:    cmp.Or(d.Gone, 30*time.Second),
		Stream:  cmp.Or(d.Stream, 5*time.Second),
		Dial:    cmp.Or(d.Dial, 10*time.Second),
		Silence: cmp.Or(d.Silence, 5*time.Minute),
	}
}

func (c Config) withDefaults() Config {
	c.Deadlines = c.Deadlines.withDefaults()
	if c.Changed == nil {
		c.Changed = func() {}
	}
	if c.Health == nil {
		c.Health = func(string, []DeviceHealth) {}
	}
	if c.Gone == nil {
		c.Gone = func(string) {}
	}
	if c.dial == nil {
		c.dial = socket.Dial
	}
	return c
}
