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

func (d *Reader) useUnified(path string, c *Counts) error {
	if err := d.open(filepath.Join(d.mount, path)); err != nil {
		return err
	}
	defer d.close()
	c.Memory.Usage, c.Memory.Limit = d.number("memory.current"), d.number("memory.max")
	d.pairs("memory.stat", values{"anon": &c.Memory.RSS, "inactive_file": &c.Memory.InactiveFile})
	d.processes(c)
	return nil
}

func (d *directory) unifiedCPU(c *CPU) {
	if weight := d.number("cpu.weight"); weight > 0 {
		c.Shares = cgroups.SharesOf(weight)
	}
	quota, period, _ := bytes.Cut(d.read("cpu.max"), []byte{' '})
	if n, ok := parseNumber(quota); ok {
		c.Quota = n
		c.Period, _ = parseNumber(period)
	}
	d.pairs("cpu.stat", values{
		"usage_usec": &c.Usage, "user_usec": &c.User, "system_usec": &c.System,
		"nr_periods": &c.Periods, "nr_throttled": &c.Throttled, "throttled_usec": &c.ThrottledTime,
	})
	for _, micros := range []*uint64{&c.Usage, &c.User, &c.System, &c.ThrottledTime} {
		*micros *= 1000
	}
}

func (d *directory) unifiedMemory(m *Memory) {
	m.Usage, m.Peak = d.number("memory.current"), d.number("memory.peak")
	m.Limit = d.number("memory.max")
	d.pairs("memory.events", values{"max": &m.Failures, "oom_kill": &m.OutOfMemoryKillings})
	d.pairs("memory.stat", values{
		"anon": &m.RSS, "file": &m.Cache, "kernel": &m.Kernel, "file_mapped": &m.Mapped,
		"active_file": &m.ActiveFile, "inactive_file": &m.InactiveFile,
		"pgfault": &m.Faults.All, "pgmajfault": &m.Faults.Major,
	})
}
