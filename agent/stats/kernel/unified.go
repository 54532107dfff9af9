package kernel

import (
	"bytes"
	"path/filepath"

	"github.com/numalet/numalet/cgroups"
)

// readUnified reads a cgroup of version 2.
func (d *Reader) readUnified(path string, c *Counts) error {
	if err := d.open(filepath.Join(d.mount, path)); err != nil {
		return err
	}
	defer d.close()
	d.unifiedCPU(&c.CPU)
	d.unifiedMemory(&c.Memory)
	if swap, ok := parseNumber(d.read("memory.swap.current")); ok {
		c.Swap = &Swap{Usage: swap, Limit: d.number("memory.swap.max")}
	}
	d.processes(c)
	c.Pressure = Pressure{
		d.pressure("cpu.pressure"), d.pressure("memory.pressure"), d.pressure("io.pressure"),
	}
	return nil
}

func (d *Reader) unifiedCPU(c *CPU) {
	if weight := d.number("cpu.weight"); weight > 0 {
		c.Shares = cgroups.SharesOf(weight)
	}
	quota, period, _ := bytes.Cut(d.read("cpu.max"), []byte{' '})
	if n, ok := parseNumber(quota); ok {
		c.Quota = n
		c.Period, _ = parseNumber(period)
	}
	eachPair(d.read("cpu.stat"), func(key []byte, value uint64) {
		switch string(key) {
		case "usage_usec":
			c.Usage = value * 1000
		case "user_usec":
			c.User = value * 1000
		case "system_usec":
			c.System = value * 1000
		case "nr_periods":
			c.Periods = value
		case "nr_throttled":
			c.Throttled = value
		case "throttled_usec":
			c.ThrottledTime = value * 1000
		}
	})
}

func (d *Reader) unifiedMemory(m *Memory) {
	m.Usage, m.Peak = d.number("memory.current"), d.number("memory.peak")
	m.Limit = d.number("memory.max")
	eachPair(d.read("memory.events"), func(key []byte, value uint64) {
		switch string(key) {
		case "max":
			m.Failures = value
		case "oom_kill":
			m.OutOfMemoryKillings = value
		}
	})
	eachPair(d.read("memory.stat"), func(key []byte, value uint64) {
		switch string(key) {
		case "anon":
			m.RSS = value
		case "file":
			m.Cache = value
		case "kernel":
			m.Kernel = value
		case "file_mapped":
			m.Mapped = value
		case "active_file":
			m.ActiveFile = value
		case "inactive_file":
			m.InactiveFile = value
		case "pgfault":
			m.Faults.All = value
		case "pgmajfault":
			m.Faults.Major = value
		}
	})
}
