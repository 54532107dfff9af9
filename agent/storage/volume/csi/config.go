package csi

import (
	"cmp"
	"time"

	"k8s.io/component-base/metrics"
)

// Config configures New. Its functions must not block; all are optional.
type Config struct {
	// Changed is called after what Nodes returns has changed.
	Changed func()
	// Deadlines bound the calls; zero fields get their default.
	Deadlines Deadlines
	// Registry takes the metrics; nil: there are none.
	Registry metrics.KubeRegistry
}

// Deadlines are the kubelet's.
type Deadlines struct {
	// Call bounds a call to a driver; 2 min.
	Call time.Duration
	// Dial bounds an attempt to connect; 10 s.
	Dial time.Duration
}

func (c Config) withDefaults() Config {
	c.Deadlines.Call = cmp.Or(c.Deadlines.Call, 2*time.Minute)
	c.Deadlines.Dial = cmp.Or(c.Deadlines.Dial, 10*time.Second)
	if c.Changed == nil {
		c.Changed = func() {}
	}
	return c
}
