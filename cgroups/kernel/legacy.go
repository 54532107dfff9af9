package kernel

import (
	"math"
	"path/filepath"
)

// unlimited is the least value of memory.limit_in_bytes that means no limit: the largest number,
// rounded down to a page of at most 64 KiB.
const unlimited = math.MaxInt64 - 64<<10

// tick is the unit of cpuacct.stat, USER_HZ, in nanoseconds.
const tick = 1e7

// readLegacy reads a cgroup of version 1, which has a directory for each controller. The cgroup
// exists if its memory directory does.
func (d *Reader) readLegacy(path string, c *Counts) error {
	if err := d.open(filepath.Join(d.mount, "memory", path)); err != nil {
		return err
	}
	d.legacyMemory(c)
	d.close()
	for controller, read := range map[string]func(*Counts){
		"cpuacct": d.legacyTime, "cpu": d.legacyQuota, "pids": d.processes,
	} {
		if d.open(filepath.Join(d.mount, controller, path)) == nil {
			read(c)
			d.close()
		}
	}
	return nil
}

func (d *Reader) useLegacy(path string, c *Counts) error {
	if err := d.open(filepath.Join(d.mount, "memory", path)); err != nil {
		return err
	}
	c.Memory.Usage, c.Memory.Limit = d.number("memory.usage_in_bytes"),
		limit(d.number("memory.limit_in_bytes"))
	d.pairs("memory.stat", values{
		"total_rss": &c.Memory.RSS, "total_inactive_file": &c.Memory.InactiveFile})
	d.close()
	if d.open(filepath.Join(d.mount, "pids", path)) == nil {
		d.processes(c)
		d.close()
	}
	return nil
}

func (d *directory) legacyMemory(c *Counts) {
	m := &c.Memory
	m.Usage, m.Peak = d.number("memory.usage_in_bytes"), d.number("memory.max_usage_in_bytes")
	m.Limit, m.Failures = limit(d.number("memory.limit_in_bytes")), d.number("memory.failcnt")
	m.Kernel = d.number("memory.kmem.usage_in_bytes")
	d.pairs("memory.oom_control", values{"oom_kill": &m.OutOfMemoryKillings})
	var swapped uint64
	d.pairs("memory.stat", values{
		"total_rss": &m.RSS, "total_cache": &m.Cache, "total_mapped_file": &m.Mapped,
		"total_active_file": &m.ActiveFile, "total_inactive_file": &m.InactiveFile,
		"total_pgfault": &m.Faults.All, "total_pgmajfault": &m.Faults.Major,
		"total_swap": &swapped,
	})
	both, ok := parseNumber(d.read("memory.memsw.limit_in_bytes"))
	if !ok {
		return
	}
	c.Swap = &Swap{Usage: swapped}
	if both = limit(both); both > 0 && m.Limit > 0 { // the limit of memory and swap together
		c.Swap.Limit = both - min(both, m.Limit)
	}
}

func limit(bytes uint64) uint64 {
	if bytes >= unlimited {
		return 0
	}
	return bytes
}

func (d *directory) legacyTime(c *Counts) {
	c.CPU.Usage = d.number("cpuacct.usage")
	d.pairs("cpuacct.stat", values{"user": &c.CPU.User, "system": &c.CPU.System})
	c.CPU.User, c.CPU.System = c.CPU.User*tick, c.CPU.System*tick
}

func (d *directory) legacyQuota(c *Counts) {
	c.CPU.Shares = d.number("cpu.shares")
	if c.CPU.Quota = d.number("cpu.cfs_quota_us"); c.CPU.Quota > 0 {
		c.CPU.Period = d.number("cpu.cfs_period_us")
	}
	d.pairs("cpu.stat", values{"nr_periods": &c.CPU.Periods, "nr_throttled": &c.CPU.Throttled,
		"throttled_time": &c.CPU.ThrottledTime})
}

func (d *directory) processes(c *Counts) { c.Processes = d.number("pids.current") }
