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

// loginLock takes the lock of a target, which is held to log in or out.
type loginLock func(context.Context) (done func(), err error)

// attach logs in to the portals that have no session yet, and returns the name of the disk's block
// device.
func (d *ISCSI) attach(ctx context.Context, h Host, lock loginLock) (string, error) {
	found := map[string]string{} // disks, by portal
	var last error
	for round := 1; len(found) < len(d.portals) && round <= mostRounds; round++ {
		for _, portal := range d.portals {
			if found[portal] != "" {
				continue
			}
			disk, err := d.path(ctx, h, lock, portal)
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
				errNoPortal, last), iscsiadm{d, h}.removeIface(ctx))
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
func (d *ISCSI) path(ctx context.Context, h Host, lock loginLock, portal string) (string, error) {
	s, err := iscsiadm{d, h}.login(ctx, lock, portal)
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

// iscsiadm is the host's command for sessions with a disk's target.
type iscsiadm struct {
	*ISCSI
	host Host
}

// login returns the session with a portal, and makes it if there is none.
func (i iscsiadm) login(ctx context.Context, lock loginLock, portal string) (session, error) {
	done, err := lock(ctx)
	if err != nil {
		return session{}, err
	}
	defer done()
	if s, has, err := i.session(portal); has || err != nil {
		return s, err
	}
	if err := i.makeIface(ctx); err != nil {
		return session{}, err
	}
	if err := i.discover(ctx, portal); err != nil {
		return session{}, err
	}
	if err := i.begin(ctx, portal); err != nil {
		return session{}, err
	}
	s, has, err := i.session(portal)
	if err == nil && !has {
		err = errors.New("iscsiadm has logged in, and sysfs has no session with that portal")
	}
	return s, err
}

// session returns the session of the disk's interface with a portal.
func (i iscsiadm) session(portal string) (session, bool, error) {
	all, err := i.host.sessions(i.iqn)
	if err != nil {
		return session{}, false, err
	}
	at := slices.IndexFunc(all, node{portal, i.iqn, i.iface}.is)
	if at < 0 {
		return session{}, false, nil
	}
	return all[at], true, nil
}

// lacksSession reports whether a portal of the disk has no session, as far as the host says it.
func (d *ISCSI) lacksSession(h Host) bool {
	all, err := h.sessions(d.iqn)
	return err != nil || slices.ContainsFunc(d.portals, func(portal string) bool {
		return !slices.ContainsFunc(all, node{portal, d.iqn, d.iface}.is)
	})
}

// discover makes the target's record, as the portal has it.
func (i iscsiadm) discover(ctx context.Context, portal string) error {
	db := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", i.iface}
	with := func(more ...string) []string { return append(slices.Clip(db), more...) }
	_, _ = i.host.do(ctx, "make a record", "iscsiadm", with("-o", "new")...) // it may be there
	if i.chap.discovery {
		if err := i.authenticate(ctx, db, "discovery.sendtargets.auth"); err != nil {
			return err
		}
	}
	_, err := i.host.do(ctx, "discover the targets", "iscsiadm", with("--discover")...)
	if err != nil {
		_, _ = i.host.do(ctx, "delete the record", "iscsiadm", with("-o", "delete")...)
	}
	return err
}

// begin logs in.
func (i iscsiadm) begin(ctx context.Context, portal string) error {
	with := node{portal, i.iqn, i.iface}.args
	// A session finds only the LUNs that are asked for; older versions of iscsiadm find all.
	_, err := i.host.do(ctx, "keep the session from a scan", "iscsiadm",
		with("-o", "update", "-n", "node.session.scan", "-v", "manual")...)
	if err != nil {
		klog.FromContext(ctx).Info("iSCSI session may find disks that no volume names", "err", err)
	}
	if i.chap.session {
		if err := i.authenticate(ctx, with(), "node.session.auth"); err != nil {
			return err
		}
	}
	_, err = i.host.do(ctx, "log in", "iscsiadm", with("--login")...)
	if err != nil && exitCode(err) != sessionExists {
		_, _ = i.host.do(ctx, "delete the record", "iscsiadm", with("-o", "delete")...)
		return err
	}
	// The host's boot does not wait for targets of pods.
	_, err = i.host.do(ctx, "keep the host from a login at boot", "iscsiadm",
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
func (i iscsiadm) authenticate(ctx context.Context, of []string, prefix string) error {
	with := func(key, value string) []string {
		return append(slices.Clip(of), "-o", "update", "-n", key, "-v", value)
	}
	if _, err := i.host.do(ctx, "set CHAP", "iscsiadm", with(prefix+".authmethod", "CHAP")...); err != nil {
		return err
	}
	for _, name := range []string{"username", "password", "username_in", "password_in"} {
		key := prefix + "." + name
		value := i.chap.secret[key]
		if value == "" {
			continue
		}
		if _, err := i.host.do(ctx, "set "+key, "iscsiadm", with(key, value)...); err != nil {
			return errors.New(strings.ReplaceAll(err.Error(), value, "***"))
		}
	}
	return nil
}

// makeIface makes the interface with the volume's initiator, if it names one.
func (i iscsiadm) makeIface(ctx context.Context) error {
	if i.iface == i.from {
		return nil
	}
	text, err := i.host.do(ctx, "read interface "+i.from, "iscsiadm", "-m", "iface", "-I", i.from,
		"-o", "show")
	if err != nil {
		return err
	}
	settings := ifaceSettings(text)
	settings["iface.initiatorname"] = i.initiator
	_, err = i.host.do(ctx, "make interface "+i.iface, "iscsiadm", "-m", "iface", "-I", i.iface,
		"-o", "new")
	if err != nil && exitCode(err) != sessionExists {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		if _, err := i.host.do(ctx, "set "+key, "iscsiadm", "-m", "iface", "-I", i.iface, "-o", "update",
			"-n", key, "-v", settings[key]); err != nil {
			return errors.Join(err, i.removeIface(ctx))
		}
	}
	return nil
}

// removeIface removes the interface that was made for the volume.
func (i iscsiadm) removeIface(ctx context.Context) error {
	if !i.owns() {
		return nil
	}
	_, err := i.host.do(ctx, "remove interface "+i.iface, "iscsiadm", "-m", "iface", "-I", i.iface,
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
