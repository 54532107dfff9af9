package scsi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

const (
	// deviceWait is how long a disk is waited for after a scan, and multipathWait how long its
	// multipath device, as in the kubelet.
	deviceWait    = 30 * time.Second
	multipathWait = 10 * time.Second
	// look is the time between two looks for a device.
	look = 200 * time.Millisecond
	// A volume of several portals goes on with enoughPaths of them after enoughRounds, and with what
	// there is after mostRounds.
	enoughPaths, enoughRounds, mostRounds = 2, 2, 5
)

// Exit codes of iscsiadm (open-iscsi/include/iscsi_err.h).
const (
	sessionNotFound = 2
	sessionExists   = 15
	noObjects       = 21
)

// logins gives the turn to log in to a target, or out.
type logins func(context.Context) (done func(), err error)

// attach logs in to the portals that have no session yet, and returns the name of the disk's block
// device.
func (d *ISCSI) attach(ctx context.Context, h Host, turn logins) (string, error) {
	found := map[string]string{} // disks, by portal
	var last error
	for round := 1; len(found) < len(d.portals) && round <= mostRounds; round++ {
		for _, portal := range d.portals {
			if found[portal] != "" {
				continue
			}
			disk, err := d.path(ctx, h, turn, portal)
			if err != nil {
				last = fmt.Errorf("portal %s: %w", portal, err)
				klog.FromContext(ctx).Info("iSCSI portal does not have the disk", "disk", d,
					"err", last)
				continue
			}
			found[portal] = disk
		}
		if len(found) == 0 {
			return "", errors.Join(fmt.Errorf("failed to get any path for iscsi disk, %v: %w: %w", d,
				errNoPortal, last), d.removeIface(ctx, h))
		}
		if len(found) >= enoughPaths && round >= enoughRounds {
			break
		}
	}
	wait := time.Duration(0)
	if len(d.portals) > 1 {
		wait = multipathWait
	}
	return h.best(ctx, slices.Sorted(maps.Values(found)), wait), nil
}

// best returns the multipath device of the disks, or the first disk if none comes within wait.
func (h Host) best(ctx context.Context, disks []string, wait time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		for _, disk := range disks {
			if dm := h.multipath(disk); dm != "" {
				return dm
			}
		}
		if !await.For(ctx, look) {
			return disks[0]
		}
	}
}

// path returns the disk behind one portal.
func (d *ISCSI) path(ctx context.Context, h Host, turn logins, portal string) (string, error) {
	s, err := d.login(ctx, h, turn, portal)
	if err != nil {
		return "", err
	}
	if err := h.scanLUN(s.host, d.lun); err != nil {
		return "", fmt.Errorf("scan SCSI host %d: %w", s.host, err)
	}
	return d.device(ctx, h, s)
}

// device waits for the block device of the disk in a session.
func (d *ISCSI) device(ctx context.Context, h Host, s session) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, deviceWait)
	defer cancel()
	for {
		if disks := s.disks(d.lun); len(disks) > 0 && h.hasNode(disks[0]) {
			return disks[0], nil
		}
		if !await.For(ctx, look) {
			return "", fmt.Errorf("timed out waiting for the device of LUN %d after %v: the target "+
				"may not show that LUN to this node's initiator", d.lun, deviceWait)
		}
	}
}

// login returns the session with a portal, and makes it if there is none.
func (d *ISCSI) login(ctx context.Context, h Host, turn logins, portal string) (session, error) {
	done, err := turn(ctx)
	if err != nil {
		return session{}, err
	}
	defer done()
	if s, has, err := d.session(h, portal); has || err != nil {
		return s, err
	}
	if err := d.makeIface(ctx, h); err != nil {
		return session{}, err
	}
	if err := d.discover(ctx, h, portal); err != nil {
		return session{}, err
	}
	if err := d.begin(ctx, h, portal); err != nil {
		return session{}, err
	}
	s, has, err := d.session(h, portal)
	if err == nil && !has {
		err = errors.New("iscsiadm has logged in, and sysfs has no session with that portal")
	}
	return s, err
}

// session returns the session of the disk's interface with a portal.
func (d *ISCSI) session(h Host, portal string) (session, bool, error) {
	all, err := h.sessions(d.iqn)
	if err != nil {
		return session{}, false, err
	}
	at := slices.IndexFunc(all, node{portal, d.iqn, d.iface}.is)
	if at < 0 {
		return session{}, false, nil
	}
	return all[at], true, nil
}

// discover makes the target's record, as the portal has it.
func (d *ISCSI) discover(ctx context.Context, h Host, portal string) error {
	db := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", d.iface}
	with := func(more ...string) []string { return append(slices.Clip(db), more...) }
	_, _ = h.do(ctx, "make a record", "iscsiadm", with("-o", "new")...) // it may be there
	if d.chap.discovery {
		if err := d.authenticate(ctx, h, db, "discovery.sendtargets.auth"); err != nil {
			return err
		}
	}
	_, err := h.do(ctx, "discover the targets", "iscsiadm", with("--discover")...)
	if err != nil {
		_, _ = h.do(ctx, "delete the record", "iscsiadm", with("-o", "delete")...)
	}
	return err
}

// begin logs in.
func (d *ISCSI) begin(ctx context.Context, h Host, portal string) error {
	with := node{portal, d.iqn, d.iface}.args
	// A session finds only the LUNs that are asked for; older versions of iscsiadm find all.
	_, err := h.do(ctx, "keep the session from a scan", "iscsiadm",
		with("-o", "update", "-n", "node.session.scan", "-v", "manual")...)
	if err != nil {
		klog.FromContext(ctx).Info("iSCSI session may find disks that no volume names", "err", err)
	}
	if d.chap.session {
		if err := d.authenticate(ctx, h, with(), "node.session.auth"); err != nil {
			return err
		}
	}
	_, err = h.do(ctx, "log in", "iscsiadm", with("--login")...)
	if err != nil && exitCode(err) != sessionExists {
		_, _ = h.do(ctx, "delete the record", "iscsiadm", with("-o", "delete")...)
		return err
	}
	// The host's boot does not wait for targets of pods.
	_, err = h.do(ctx, "keep the host from a login at boot", "iscsiadm",
		with("-o", "update", "-n", "node.startup", "-v", "manual")...)
	if err != nil {
		klog.FromContext(ctx).Info("the node may log in to an iSCSI target when it boots", "err", err)
	}
	return nil
}

// node is iscsiadm's record of a target at a portal, for an interface.
type node struct{ portal, iqn, iface string }

// args returns the arguments that name the record, and more.
func (n node) args(more ...string) []string {
	return append([]string{"-m", "node", "-p", n.portal, "-T", n.iqn, "-I", n.iface}, more...)
}

// is reports whether a session with the target is the record's.
func (n node) is(s session) bool {
	return s.iface == n.iface && slices.Contains(s.portals, plain(n.portal))
}

// authenticate writes CHAP's keys into a record. Errors do not contain the values.
func (d *ISCSI) authenticate(ctx context.Context, h Host, of []string, prefix string) error {
	with := func(key, value string) []string {
		return append(slices.Clip(of), "-o", "update", "-n", key, "-v", value)
	}
	if _, err := h.do(ctx, "set CHAP", "iscsiadm", with(prefix+".authmethod", "CHAP")...); err != nil {
		return err
	}
	for _, name := range []string{"username", "password", "username_in", "password_in"} {
		key := prefix + "." + name
		value := d.chap.secret[key]
		if value == "" {
			continue
		}
		if _, err := h.do(ctx, "set "+key, "iscsiadm", with(key, value)...); err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), value, "***"))
		}
	}
	return nil
}

// makeIface makes the interface with the volume's initiator, if it names one.
func (d *ISCSI) makeIface(ctx context.Context, h Host) error {
	if d.iface == d.from {
		return nil
	}
	text, err := h.do(ctx, "read interface "+d.from, "iscsiadm", "-m", "iface", "-I", d.from,
		"-o", "show")
	if err != nil {
		return err
	}
	settings := ifaceSettings(text)
	settings["iface.initiatorname"] = d.initiator
	_, err = h.do(ctx, "make interface "+d.iface, "iscsiadm", "-m", "iface", "-I", d.iface,
		"-o", "new")
	if err != nil && exitCode(err) != sessionExists {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if _, err := h.do(ctx, "set "+key, "iscsiadm", "-m", "iface", "-I", d.iface, "-o", "update",
			"-n", key, "-v", settings[key]); err != nil {
			return errors.Join(err, d.removeIface(ctx, h))
		}
	}
	return nil
}

// removeIface removes the interface that was made for the volume.
func (d *ISCSI) removeIface(ctx context.Context, h Host) error {
	if !d.owns() {
		return nil
	}
	_, err := h.do(ctx, "remove interface "+d.iface, "iscsiadm", "-m", "iface", "-I", d.iface,
		"-o", "delete")
	return unlessGone(err)
}

// unlessGone returns the error of iscsiadm unless it says that what was to be removed is not there.
func unlessGone(err error) error {
	if code := exitCode(err); code == sessionNotFound || code == noObjects {
		return nil
	}
	return err
}

// ifaceSettings returns what iscsiadm shows of an interface, but its name.
func ifaceSettings(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, has := strings.Cut(strings.TrimSpace(line), " = ")
		is := has && strings.HasPrefix(key, "iface.") && value != "<empty>"
		if is && key != "iface.iscsi_ifacename" {
			out[key] = value
		}
	}
	return out
}
