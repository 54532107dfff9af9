package kernel

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// DeviceIO counts what a cgroup and everything below it read from and wrote to a block device.
type DeviceIO struct {
	Device                                 string // "/dev/sda"; "8:0" if it has no name
	ReadBytes, Reads, WrittenBytes, Writes uint64
}

// IO returns the counts for each block device of the cgroup at path, ordered by device name. It is
// empty if the kernel does not count.
func (d *Reader) IO(path string) []DeviceIO {
	all := map[string]*DeviceIO{}
	of := func(number []byte) *DeviceIO {
		one := all[string(number)]
		if one == nil {
			one = &DeviceIO{Device: d.deviceName(string(number))}
			all[string(number)] = one
		}
		return one
	}
	if d.unified {
		d.unifiedIO(path, of)
	} else {
		d.legacyIO(path, of)
	}
	out := make([]DeviceIO, 0, len(all))
	for _, one := range all {
		out = append(out, *one)
	}
	slices.SortFunc(out, func(a, b DeviceIO) int { return strings.Compare(a.Device, b.Device) })
	return out
}

// unifiedIO reads lines "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0".
func (d *Reader) unifiedIO(path string, of func(number []byte) *DeviceIO) {
	if d.open(filepath.Join(d.mount, path)) != nil {
		return
	}
	defer d.close()
	for line := range bytes.Lines(d.read("io.stat")) {
		fields := bytes.Fields(line)
		if len(fields) < 2 {
			continue
		}
		one := of(fields[0])
		to := values{"rbytes": &one.ReadBytes, "wbytes": &one.WrittenBytes, "rios": &one.Reads,
			"wios": &one.Writes}
		for _, f := range fields[1:] {
			key, value, _ := bytes.Cut(f, []byte{'='})
			to.take(key, value)
		}
	}
}

// legacyIO reads lines "8:0 Read 1".
func (d *Reader) legacyIO(path string, of func(number []byte) *DeviceIO) {
	if d.open(filepath.Join(d.mount, "blkio", path)) != nil {
		return
	}
	defer d.close()
	each := func(name string, counts func(*DeviceIO) values) {
		for line := range bytes.Lines(d.read(name)) {
			if fields := bytes.Fields(line); len(fields) == 3 {
				counts(of(fields[0])).take(fields[1], fields[2])
			}
		}
	}
	each("blkio.throttle.io_service_bytes_recursive", func(i *DeviceIO) values {
		return values{"Read": &i.ReadBytes, "Write": &i.WrittenBytes}
	})
	each("blkio.throttle.io_serviced_recursive", func(i *DeviceIO) values {
		return values{"Read": &i.Reads, "Write": &i.Writes}
	})
}

// deviceName returns the path of a block device, given its major and minor number.
func (d *Reader) deviceName(number string) string {
	if name, known := d.names[number]; known {
		return name
	}
	name := number
	if to, err := os.Readlink(filepath.Join("/sys/dev/block", filepath.Base(number))); err == nil {
		name = "/dev/" + filepath.Base(to)
	}
	if d.names == nil {
		d.names = map[string]string{}
	}
	d.names[number] = name
	return name
}

// Process returns a process in the cgroup at path itself, not below, and whether there is one.
func (d *Reader) Process(path string) (pid int, ok bool) {
	controller := "memory"
	if d.unified {
		controller = ""
	}
	if d.open(filepath.Join(d.mount, controller, path)) != nil {
		return 0, false
	}
	defer d.close()
	first, _, _ := bytes.Cut(d.read("cgroup.procs"), []byte{'\n'})
	n, ok := parseNumber(first)
	return int(n), ok && n > 0 // 0 is a process in another PID namespace
}
