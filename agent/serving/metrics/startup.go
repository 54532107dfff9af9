package metrics

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/numalet/numalet/internal/metric"
)

// Startup measures how the node joined the cluster, once in the agent's life.
type Startup struct {
	before, start, registration, after, all *metrics.Gauge

	mu sync.Mutex // guards the fields below
	// booted is the machine's boot time, zero if unknown. The others are the times at which the agent
	// started, began to register, and was registered. done is set once the node is ready.
	booted, began, registering, registered time.Time
	done                                   bool
}

func newStartup(s *metric.Set) *Startup {
	const name = "kubelet_node_startup_"
	return &Startup{
		before: s.Gauge(name+"pre_kubelet_duration_seconds",
			"Seconds from when the machine was booted until the agent started."),
		start: s.Gauge(name+"pre_registration_duration_seconds",
			"Seconds from when the agent started until it began to register the node."),
		registration: s.Gauge(name+"registration_duration_seconds",
			"Seconds that the registration of the node took."),
		after: s.Gauge(name+"post_registration_duration_seconds",
			"Seconds from when the node was registered until it was ready."),
		all: s.Gauge(name+"duration_seconds",
			"Seconds from when the machine was booted until the node was ready."),
		began: time.Now(),
	}
}

// Booted records the machine's boot time.
func (s *Startup) Booted(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.booted = at
	s.before.Set(s.began.Sub(at).Seconds())
}

// Registering records that the node is about to be registered.
func (s *Startup) Registering() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.registering.IsZero() {
		s.registering = now
		s.start.Set(now.Sub(s.began).Seconds())
	}
}

// NodeWritten records that the API server has the node, and whether it has it as ready.
func (s *Startup) NodeWritten(ready bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.registered.IsZero() {
		s.registered = now
		s.registration.Set(now.Sub(s.registering).Seconds())
	}
	if !ready || s.done {
		return
	}
	s.done = true
	s.after.Set(now.Sub(s.registered).Seconds())
	if !s.booted.IsZero() {
		s.all.Set(now.Sub(s.booted).Seconds())
	}
}
