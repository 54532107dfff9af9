package cgroups

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"
	ocisystemd "github.com/opencontainers/cgroups/systemd"
)

// systemd makes the slices of the tree and gets the values that it would otherwise reset. The managers
// of opencontainers' library wait for systemd without a context, ignore that a slice was not stopped, and
// write the quota into cgroupfs as rounded for systemd.
type systemd struct {
	unified bool
	connect func(context.Context) (bus, error)
}

// bus is the used part of systemd's D-Bus interface (org.freedesktop.systemd1(5)).
type bus interface {
	StartTransientUnitContext(ctx context.Context, name, mode string,
		properties []dbus.Property, done chan<- string) (int, error)
	SetUnitPropertiesContext(ctx context.Context, name string, runtime bool,
		properties ...dbus.Property) error
	StopUnitContext(ctx context.Context, name, mode string, done chan<- string) (int, error)
	Close()
}

func newSystemd(unified bool) (*systemd, error) {
	if !ocisystemd.IsRunningSystemd() {
		return nil, errors.New("cgroup driver systemd: systemd does not run here (/run/systemd/system " +
			"does not exist): set cgroupDriver to cgroupfs, here and in the runtime")
	}
	connect := func(ctx context.Context) (bus, error) { return dbus.NewWithContext(ctx) }
	return &systemd{unified: unified, connect: connect}, nil
}

// ensure starts the slice, or sends systemd its new values if it exists.
func (s *systemd) ensure(ctx context.Context, g group, r Resources) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()

	values := s.values(r)
	properties := append([]dbus.Property{
		dbus.PropDescription("pods: " + g.slice()),
		property("DefaultDependencies", false),
		property("CPUAccounting", true),
		property("MemoryAccounting", true),
		property("TasksAccounting", true),
	}, values...)
	if len(g) > 1 {
		properties = append(properties, dbus.PropWants(g[:len(g)-1].slice()))
	}
	done := make(chan string, 1)
	_, err = conn.StartTransientUnitContext(ctx, g.slice(), "replace", properties, done)
	if isBusError(err, "org.freedesktop.systemd1.UnitExists") {
		if len(values) == 0 {
			return nil
		}
		if err := conn.SetUnitPropertiesContext(ctx, g.slice(), true, values...); err != nil {
			return fmt.Errorf("set properties of %s: %w", g.slice(), err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("start %s: %w", g.slice(), err)
	}
	return wait(ctx, "start", g.slice(), done)
}

// limit sends systemd the CPU quota of an existing slice.
func (s *systemd) limit(ctx context.Context, g group, l CPULimit) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	r := Resources{Quota: l.Quota, Period: time.Duration(l.Period) * time.Microsecond}
	return conn.SetUnitPropertiesContext(ctx, g.slice(), true, s.values(r)...)
}

func (s *systemd) stop(ctx context.Context, g group) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return fmt.Errorf("connect to systemd: %w", err)
	}
	defer conn.Close()
	done := make(chan string, 1)
	_, err = conn.StopUnitContext(ctx, g.slice(), "replace", done)
	if isBusError(err, "org.freedesktop.systemd1.NoSuchUnit") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("stop %s: %w", g.slice(), err)
	}
	return wait(ctx, "stop", g.slice(), done)
}

// wait waits for the result of a job; "done" means success (systemd.unit).
func wait(ctx context.Context, verb, unit string, done <-chan string) error {
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("%s %s: systemd says %s", verb, unit, result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w", verb, unit, context.Cause(ctx))
	}
}

// values returns the resources as properties (systemd.resource-control(5)). systemd has none for
// huge pages.
func (s *systemd) values(r Resources) []dbus.Property {
	var p []dbus.Property
	if r.Shares > 0 && s.unified {
		p = append(p, property("CPUWeight", Weight(r.Shares)))
	} else if r.Shares > 0 {
		p = append(p, property("CPUShares", r.Shares))
	}
	if r.Quota != 0 {
		p = append(p,
			property("CPUQuotaPeriodUSec", uint64(r.Period.Microseconds())),
			property("CPUQuotaPerSecUSec", quotaPerSecond(r)))
	}
	limit := uint64(r.Memory)
	if r.Memory == Unlimited {
		limit = math.MaxUint64
	}
	if r.Memory != 0 && s.unified {
		p = append(p, property("MemoryMax", limit))
	} else if r.Memory != 0 {
		p = append(p, property("MemoryLimit", limit))
	}
	if s.unified {
		p = append(p, memoryValues(r)...)
	}
	if r.Pids > 0 {
		p = append(p, property("TasksMax", uint64(r.Pids)))
	}
	return p
}

func memoryValues(r Resources) []dbus.Property {
	var p []dbus.Property
	if r.Protection != nil {
		p = append(p, property("MemoryMin", uint64(r.Protection.Min)),
			property("MemoryLow", uint64(r.Protection.Low)))
	}
	switch {
	case r.High == Unlimited:
		p = append(p, property("MemoryHigh", uint64(math.MaxUint64)))
	case r.High > 0:
		p = append(p, property("MemoryHigh", uint64(r.High)))
	}
	return p
}

// quotaPerSecond returns the CPU time in microseconds per second. systemd keeps whole percents, so
// it is rounded up to 10 ms, and never below the quota of a container in the slice.
func quotaPerSecond(r Resources) uint64 {
	if r.Quota == Unlimited {
		return math.MaxUint64
	}
	const percent = 10_000
	perSecond := r.Quota * 1_000_000 / r.Period.Microseconds()
	return uint64((perSecond + percent - 1) / percent * percent)
}

func property(name string, value any) dbus.Property {
	return dbus.Property{Name: name, Value: godbus.MakeVariant(value)}
}

func isBusError(err error, name string) bool {
	e, is := errors.AsType[godbus.Error](err)
	return is && e.Name == name
}
