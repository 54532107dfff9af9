package scsi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// others lists what must not lose its session or device.
type others struct {
	disks   []Disk                 // those with a directory
	mounted func(disk string) bool // whether something of a block device is mounted
}

// detach removes the disk's devices, and logs out where no other disk needs the session. Nothing of
// the disk is mounted by the agent any more.
func (d *ISCSI) detach(ctx context.Context, h Host, o others) error {
	sessions, err := h.sessions(d.iqn)
	if err != nil {
		return err
	}
	mine := slices.DeleteFunc(slices.Clone(sessions),
		func(s session) bool { return !d.uses(s, sessions) })
	var disks []string
	for _, s := range mine {
		disks = append(disks, s.disks(d.lun)...)
	}
	if !o.has(func(other *ISCSI) bool { return other.iqn == d.iqn && other.lun == d.lun }) {
		if err := h.drop(ctx, disks, o); err != nil {
			return err
		}
	}
	command, errs := iscsiadm{d, h}, []error{}
	for _, portal := range d.portals {
		ifaces := []string{d.iface}
		for _, s := range mine {
			if slices.Contains(s.portals, plain(portal)) && !slices.Contains(ifaces, s.iface) {
				ifaces = append(ifaces, s.iface)
			}
		}
		for _, iface := range ifaces {
			errs = append(errs, command.logout(ctx, node{portal, d.iqn, iface}, sessions, o))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return command.removeIface(ctx)
}

// uses reports whether the disk is reached by a session. A kubelet takes a session of any interface,
// if there is one.
func (d *ISCSI) uses(s session, all []session) bool {
	for _, portal := range d.portals {
		if !slices.Contains(s.portals, plain(portal)) {
			continue
		}
		own := slices.ContainsFunc(all, node{portal, d.iqn, d.iface}.is)
		if s.iface == d.iface || !own {
			return true
		}
	}
	return false
}

// has reports whether the node has such another disk of iSCSI.
func (o others) has(is func(*ISCSI) bool) bool {
	return slices.ContainsFunc(o.disks, func(other Disk) bool {
		of, is2 := other.(*ISCSI)
		return is2 && is(of)
	})
}

// logout ends a session, and removes its record, unless another disk needs it.
func (i iscsiadm) logout(ctx context.Context, of node, all []session, o others) error {
	for _, s := range all {
		if !of.is(s) {
			continue
		}
		if o.has(func(other *ISCSI) bool { return other.iqn == i.iqn && other.uses(s, all) }) {
			return nil
		}
		for _, disk := range s.disks(-1) {
			if o.busy(i.host, disk) != "" {
				return nil // in use, though by no volume of the node
			}
		}
	}
	if o.has(func(other *ISCSI) bool {
		return other.iqn == i.iqn && other.iface == of.iface &&
			slices.Contains(other.portals, of.portal)
	}) {
		return nil
	}
	for _, do := range [][]string{{"--logout"}, {"-o", "delete"}} {
		_, err := i.host.do(ctx, fmt.Sprintf("log out of %v at portal %s", i.ISCSI, of.portal), "iscsiadm",
			of.args(do...)...)
		if err := unlessGone(err); err != nil {
			return err
		}
	}
	return i.endSessions(ctx, of)
}

// endSessions ends sessions that have no record: a login that outlived the agent which began it may have
// ended after the record was deleted, or beside another login.
func (i iscsiadm) endSessions(ctx context.Context, of node) error {
	all, err := i.host.sessions(i.iqn)
	errs := []error{err}
	for _, s := range all {
		if !of.is(s) {
			continue
		}
		id := strings.TrimPrefix(filepath.Base(s.dir), "session")
		_, err := i.host.do(ctx, fmt.Sprintf("log out of %v at portal %s, by session", i.ISCSI, of.portal),
			"iscsiadm", "-m", "session", "-r", id, "--logout")
		errs = append(errs, unlessGone(err))
	}
	return errors.Join(errs...)
}

// busy returns what uses a block device: a device on it, or a mount; "": nothing.
func (o others) busy(h Host, disk string) string {
	if all := h.holders(disk); len(all) > 0 {
		return "device " + all[0]
	}
	if o.mounted(disk) {
		return "a mount"
	}
	return ""
}

// drop has the kernel forget disks, first their multipath devices. A device in use is an error, and
// stays.
func (h Host) drop(ctx context.Context, disks []string, o others) error {
	for _, disk := range slices.Clone(disks) {
		dm := h.multipath(disk)
		if dm == "" {
			continue
		}
		if who := o.busy(h, dm); who != "" {
			return fmt.Errorf("multipath device %s is still used by %s", dm, who)
		}
		for _, slave := range h.slaves(dm) {
			if !slices.Contains(disks, slave) {
				disks = append(disks, slave)
			}
		}
		if _, err := h.do(ctx, "flush multipath device "+dm, "multipath", "-f",
			filepath.Join(h.Dev, dm)); err != nil {
			return err
		}
	}
	var errs []error
	for _, disk := range disks {
		if who := o.busy(h, disk); who != "" {
			errs = append(errs, fmt.Errorf("device %s is still used by %s: unmount or stop that",
				disk, who))
			continue
		}
		errs = append(errs, h.remove(disk))
	}
	return errors.Join(errs...)
}
