// Package watchdog keeps systemd's watchdog quiet as long as the agent does its work
// (sd_watchdog_enabled(3), WatchdogSec= of systemd.service(5)).
package watchdog

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

// shortest is the shortest period of a watchdog that a busy machine does not break.
const shortest = time.Second

// Watchdog says twice in each period that the agent is well. The zero value says nothing.
type Watchdog struct {
	period  time.Duration
	healthy func() error
}

// New reads from the environment what systemd expects; a Watchdog of no period if nothing. healthy
// must not block. While it returns an error nothing is said, and systemd ends the agent after a
// period.
func New(healthy func() error) (Watchdog, error) {
	period, err := daemon.SdWatchdogEnabled(false)
	switch {
	case err != nil:
		return Watchdog{}, fmt.Errorf("read WATCHDOG_USEC and WATCHDOG_PID: %w; systemd sets them "+
			"where the unit has WatchdogSec=", err)
	case period != 0 && period <= shortest:
		return Watchdog{}, fmt.Errorf("the watchdog's period of %v is too short; give the unit a "+
			"WatchdogSec= of more than %v", period, shortest)
	}
	return Watchdog{period: period, healthy: healthy}, nil
}

// Run keeps the watchdog quiet until ctx ends.
func (w Watchdog) Run(ctx context.Context) error {
	if w.period == 0 {
		return nil
	}
	log := klog.FromContext(ctx)
	log.Info("systemd watches over the agent", "period", w.period)
	tick := time.Tick(w.period / 2)
	for {
		if err := w.healthy(); err != nil {
			log.Error(err, "The agent is not well; systemd's watchdog is not told that it is")
		} else if _, err := daemon.SdNotify(false, daemon.SdNotifyWatchdog); err != nil {
			log.Error(err, "systemd's watchdog was not told that the agent is well")
		}
		if !await.On(ctx, tick) {
			return nil
		}
	}
}
