package scsi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/internal/files"
)

const (
	// ISCSIName and FCName are the kubelet's names of the types.
	ISCSIName = "kubernetes.io/iscsi"
	FCName    = "kubernetes.io/fc"

	devicesName = "volumeDevices"
	ifacePrefix = "iface-"
	lunInfix    = "-lun-"
	defaultPort = "3260"
	recordFile  = "iscsi.json"
	maxRecord   = 64 << 10
	// maxPortals bounds the portals of a volume.
	maxPortals = 64
)

// ISCSI is a LUN of an iSCSI target.
type ISCSI struct {
	volume  string   // the volume's name
	portal  string   // as the API has it
	portals []string // with ports
	iqn     string
	lun     int
	// iface is the host's interface that the sessions are of, and from the one that it is made of; the
	// same if the volume names no initiator.
	iface, from, initiator string
	chap                   chap
}

// chap is how the node proves who it is.
type chap struct {
	discovery, session bool
	secret             map[string]string
}

// NewISCSI returns the disk that a volume of that name is. source is a pod's, or a persistent volume's;
// secret has CHAP's keys.
func NewISCSI(volume string, source *v1.ISCSIPersistentVolumeSource, secret map[string]string) (
	*ISCSI, error) {
	d := &ISCSI{volume: volume, portal: source.TargetPortal, iqn: source.IQN, lun: int(source.Lun),
		from: cmp.Or(source.ISCSIInterface, "default"), initiator: ptr.Deref(source.InitiatorName, ""),
		chap: chap{source.DiscoveryCHAPAuth, source.SessionCHAPAuth, secret}}
	if len(source.Portals) >= maxPortals {
		return nil, fmt.Errorf("the volume names %d portals; at most %d are tried",
			len(source.Portals)+1, maxPortals)
	}
	for _, portal := range append([]string{source.TargetPortal}, source.Portals...) {
		d.portals = append(d.portals, withPort(portal))
	}
	if d.iface = d.from; d.initiator != "" {
		d.iface = d.portals[0] + ":" + volume
	}
	return d, d.check()
}

// check refuses what cannot be part of a path, or what iscsiadm would take for an option.
func (d *ISCSI) check() error {
	for what, text := range map[string]string{"targetPortal": d.portal, "iqn": d.iqn,
		"iscsiInterface": d.from, "name": d.volume} {
		if err := component(what, text); err != nil {
			return err
		}
	}
	for _, portal := range d.portals {
		if err := component("portal", portal); err != nil {
			return err
		}
	}
	switch {
	case !strings.HasPrefix(d.iqn, "iqn.") && !strings.HasPrefix(d.iqn, "eui.") &&
		!strings.HasPrefix(d.iqn, "naa."):
		return fmt.Errorf("iqn %q is no name of a target; it begins with iqn., eui. or naa", d.iqn)
	case d.lun < 0:
		return fmt.Errorf("lun %d is negative", d.lun)
	}
	return nil
}

// component refuses what is no element of a path, or begins an option.
func component(what, text string) error {
	if text == "" || text == "." || text == ".." || strings.HasPrefix(text, "-") ||
		strings.ContainsAny(text, "/\x00\n") {
		return fmt.Errorf("%s %q cannot be part of a path", what, text)
	}
	return nil
}

// withPort adds the default port to a portal that has none, as the kubelet does in paths.
func withPort(portal string) string {
	if strings.Contains(portal, ":") {
		return portal
	}
	return portal + ":" + defaultPort
}

// plain returns a portal as sysfs has it: with its port, and an address of IPv6 in its short form.
func plain(portal string) string {
	if at, err := netip.ParseAddrPort(portal); err == nil {
		return at.String()
	}
	if at, err := netip.ParseAddr(strings.Trim(portal, "[]")); err == nil {
		return net.JoinHostPort(at.String(), defaultPort)
	}
	return withPort(portal)
}

// Name is the volume's unique name in the status of nodes.
func (d *ISCSI) Name() string {
	return fmt.Sprintf("%s/%s:%s:%d", ISCSIName, d.portal, d.iqn, d.lun)
}

// String names the disk in errors.
func (d *ISCSI) String() string {
	return fmt.Sprintf("LUN %d of iSCSI target %s", d.lun, d.iqn)
}

func (d *ISCSI) kind() string { return ISCSIName }

func (d *ISCSI) dir() string {
	return filepath.Join(ifacePrefix+d.iface, d.portals[0]+"-"+d.iqn+lunInfix+strconv.Itoa(d.lun))
}

// names returns the unique names that the volume may have. A disk that was found on the node does not
// know whether the API has its port.
func (d *ISCSI) names() []string {
	out := []string{d.Name()}
	if host, has := strings.CutSuffix(d.portal, ":"+defaultPort); has && d.volume == "" {
		short := *d
		short.portal = host
		out = append(out, short.Name())
	}
	return out
}

// foundISCSI returns the disk of a directory below the type's.
func foundISCSI(dir string) (Disk, error) {
	iface, isIface := strings.CutPrefix(filepath.Dir(dir), ifacePrefix)
	name := filepath.Base(dir)
	at := strings.LastIndex(name, lunInfix)
	target := -1
	for _, kind := range []string{"-iqn.", "-eui.", "-naa."} {
		if i := strings.Index(name, kind); i >= 0 && target < 0 {
			target = i
		}
	}
	if !isIface || at < 0 || target < 0 || target+1 > at {
		return nil, fmt.Errorf("%s is no directory of an iSCSI disk", dir)
	}
	lun, err := strconv.Atoi(name[at+len(lunInfix):])
	if err != nil {
		return nil, fmt.Errorf("%s is no directory of an iSCSI disk: %w", dir, err)
	}
	portal := name[:target]
	return &ISCSI{portal: portal, portals: []string{portal}, iqn: name[target+1 : at], lun: lun,
		iface: iface, from: iface}, nil
}

// record is the kubelet's record of a disk, in its form.
type record struct {
	VolName         string
	Portals         []string
	Iqn             string
	Lun             string
	InitIface       string
	Iface           string
	InitiatorName   string
	MetricsProvider any
}

// write writes the record into the disk's directory.
func (d *ISCSI) write(dir string) error {
	r := record{VolName: d.volume, Portals: d.portals, Iqn: d.iqn, Lun: strconv.Itoa(d.lun),
		InitIface: d.from, Iface: d.iface, InitiatorName: d.initiator}
	var text bytes.Buffer
	coder := json.NewEncoder(&text)
	if err := coder.Encode(r); err != nil {
		return err
	}
	path := filepath.Join(dir, recordFile)
	if err := files.MakeWay(path); err != nil {
		return err
	}
	if was, err := files.Read(path, maxRecord); err == nil && bytes.Equal(was, text.Bytes()) {
		now := time.Now() // a login begins
		return os.Chtimes(path, now, now)
	}
	return files.ReplaceDurably(path, text.Bytes())
}

// complete adds what the record in the disk's directory says. Nothing may be mounted there: a file of
// that name in the volume is the user's. Without a record, the directory's name has to do.
func (d *ISCSI) complete(dir string) {
	r, is := d.readRecord(dir)
	if !is {
		return
	}
	of := *d.clone()
	of.volume, of.from, of.initiator = r.VolName, cmp.Or(r.InitIface, d.from), r.InitiatorName
	for _, portal := range r.Portals {
		if !slices.Contains(of.portals, portal) && len(of.portals) < maxPortals {
			of.portals = append(of.portals, portal)
		}
	}
	if of.check() == nil {
		*d = of
	}
}

// readRecord returns the record in the disk's directory, unless it is lost or another disk's.
func (d *ISCSI) readRecord(dir string) (r record, is bool) {
	text, err := files.Read(filepath.Join(dir, recordFile), maxRecord)
	if err != nil || json.Unmarshal(text, &r) != nil {
		return record{}, false
	}
	return r, r.Iqn == d.iqn && r.Iface == d.iface && r.Lun == strconv.Itoa(d.lun)
}

// recorded reports whether the disk's directory has its record.
func (d *ISCSI) recorded(dir string) bool {
	_, is := d.readRecord(dir)
	return is
}

// completed returns the disk with what its record says.
func completed(disk Disk, dir string) Disk {
	i, is := disk.(*ISCSI)
	if !is {
		return disk
	}
	i = i.clone()
	i.complete(dir)
	return i
}

func (d *ISCSI) clone() *ISCSI {
	out := *d
	out.portals = slices.Clone(d.portals)
	return &out
}

// owns reports whether the interface was made for the volume.
func (d *ISCSI) owns() bool { return d.initiator != "" && d.iface == d.portals[0]+":"+d.volume }

// errNoPortal is the error of a volume none of whose portals has the disk.
var errNoPortal = errors.New("no portal has the disk")
