package scsi

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/numalet/numalet/internal/files"
)

// maxAttribute bounds a file of sysfs.
const maxAttribute = 4 << 10

// session is a session with an iSCSI target.
type session struct {
	dir     string // in sysfs
	host    int    // its SCSI host
	iface   string
	portals []string // address:port of its connections, as they are and as they were asked for
}

// attribute reads a file of sysfs.
func attribute(path ...string) (string, error) {
	text, err := files.Read(filepath.Join(path...), maxAttribute)
	return strings.TrimSpace(string(text)), err
}

// sessions returns the sessions with a target, in the order of their hosts, without those that end
// meanwhile.
func (h Host) sessions(iqn string) (out []session, err error) {
	hosts := filepath.Join(h.Sys, "class/iscsi_host")
	all, err := filepath.Glob(filepath.Join(files.Pattern(hosts), "host*", "device", "session*"))
	for _, dir := range all {
		name := filepath.Base(dir)
		own := filepath.Join(dir, "iscsi_session", name)
		target, err := attribute(own, "targetname")
		if err != nil || target != iqn {
			continue
		}
		number := strings.TrimPrefix(filepath.Base(filepath.Dir(filepath.Dir(dir))), "host")
		host, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		iface, _ := attribute(own, "ifacename")
		out = append(out, session{dir, host, iface, portalsOf(dir)})
	}
	slices.SortFunc(out, func(a, b session) int { return a.host - b.host })
	return out, err
}

// portalsOf returns the portals of a session's connections.
func portalsOf(session string) (out []string) {
	all, _ := filepath.Glob(filepath.Join(files.Pattern(session), "connection*"))
	for _, dir := range all {
		own := filepath.Join(dir, "iscsi_connection", filepath.Base(dir))
		for _, kind := range []string{"", "persistent_"} {
			address, err := attribute(own, kind+"address")
			port, portErr := attribute(own, kind+"port")
			if err == nil && portErr == nil {
				out = append(out, plain(net.JoinHostPort(address, port)))
			}
		}
	}
	return out
}

// disks returns the names of the session's block devices; lun -1: of all its LUNs.
func (s session) disks(lun int) (out []string) {
	of := "*"
	if lun >= 0 {
		of = strconv.Itoa(lun)
	}
	pattern := fmt.Sprintf("target%d:0:0/%[1]d:0:0:%s/block/*", s.host, of)
	all, _ := filepath.Glob(filepath.Join(files.Pattern(s.dir), pattern))
	for _, path := range all {
		out = append(out, filepath.Base(path))
	}
	return out
}

// scanLUN has the kernel look for one LUN of a session. A scan for all would add disks that no volume
// names, and that the agent would never delete.
func (h Host) scanLUN(host, lun int) error {
	return h.write(fmt.Sprintf("0 0 %d", lun), "class/scsi_host", fmt.Sprintf("host%d", host), "scan")
}

// scanAll has the kernel look for disks at all SCSI hosts.
func (h Host) scanAll() error {
	all, err := os.ReadDir(filepath.Join(h.Sys, "class/scsi_host"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, host := range all {
		errs = append(errs, h.write("- - -", "class/scsi_host", host.Name(), "scan"))
	}
	return errors.Join(errs...)
}

// remove has the kernel forget a disk. An absent disk is no error.
func (h Host) remove(disk string) error {
	err := h.write("1", "block", disk, "device/delete")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (h Host) write(text string, path ...string) error {
	file := filepath.Join(append([]string{h.Sys}, path...)...)
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// multipath returns the name of the multipath device on a disk; "": there is none. Other devices of
// the device mapper are no way to the disk: they have parts of it, or are encrypted.
func (h Host) multipath(disk string) string {
	if h.isMultipath(disk) {
		return disk
	}
	all, _ := filepath.Glob(filepath.Join(files.Pattern(h.Sys), "block/dm-*/slaves", disk))
	for _, slave := range all {
		name := filepath.Base(filepath.Dir(filepath.Dir(slave)))
		if h.isMultipath(name) {
			return name
		}
	}
	return ""
}

func (h Host) isMultipath(name string) bool {
	id, err := attribute(h.Sys, "block", name, "dm/uuid")
	return err == nil && strings.HasPrefix(id, "mpath-")
}

// slaves returns the disks that a device of the device mapper consists of.
func (h Host) slaves(name string) (out []string) {
	all, _ := os.ReadDir(filepath.Join(h.Sys, "block", name, "slaves"))
	for _, one := range all {
		out = append(out, one.Name())
	}
	return out
}

// holders returns the devices that consist of a disk or of its partitions.
func (h Host) holders(disk string) (out []string) {
	own := files.Pattern(filepath.Join(h.Sys, "block", disk))
	for _, pattern := range []string{"holders/*", disk + "*/holders/*"} {
		all, _ := filepath.Glob(filepath.Join(own, pattern))
		for _, path := range all {
			out = append(out, filepath.Base(path))
		}
	}
	return out
}
