package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/internal/await"
)

// FC is a disk of a Fibre Channel fabric: a LUN of targets, by their WWNs, or a disk by its WWIDs.
type FC struct {
	wwns  []string
	lun   int
	wwids []string // with underscores in place of spaces, as in the names of links
}

// NewFC returns the disk that a volume names.
func NewFC(source *v1.FCVolumeSource) (*FC, error) {
	d := &FC{}
	switch {
	case source.Lun != nil && len(source.TargetWWNs) > 0:
		d.wwns, d.lun = source.TargetWWNs, int(*source.Lun)
	case len(source.WWIDs) > 0:
		for _, wwid := range source.WWIDs {
			d.wwids = append(d.wwids, strings.ReplaceAll(wwid, " ", "_"))
		}
	default:
		return nil, errors.New("fc: no fc disk information found: name targetWWNs with a lun, or wwids")
	}
	if len(d.wwns)+len(d.wwids) > maxPortals {
		return nil, fmt.Errorf("the volume names %d paths; at most %d are tried",
			len(d.wwns)+len(d.wwids), maxPortals)
	}
	for _, id := range slices.Concat(d.wwns, d.wwids) {
		if err := component("name of a Fibre Channel disk", id); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// Name is the volume's unique name in the status of nodes.
func (d *FC) Name() string {
	if len(d.wwns) > 0 {
		return fmt.Sprintf("%s/%v:%d", FCName, d.wwns, d.lun)
	}
	return fmt.Sprintf("%s/%v", FCName, d.wwids)
}

// String names the disk in errors.
func (d *FC) String() string {
	if len(d.wwns) > 0 {
		return fmt.Sprintf("LUN %d of Fibre Channel targets %s", d.lun, strings.Join(d.wwns, ", "))
	}
	return "Fibre Channel disk " + strings.Join(d.wwids, ", ")
}

func (d *FC) kind() string { return FCName }

func (d *FC) dir() string {
	if len(d.wwns) > 0 {
		return strings.Join(d.wwns, "-") + lunInfix + strconv.Itoa(d.lun)
	}
	return strings.Join(d.wwids, "-")
}

// foundFC returns the disk of a directory below the type's.
func foundFC(dir string) (Disk, error) {
	before, lun, has := strings.Cut(dir, lunInfix)
	if !has {
		return &FC{wwids: strings.Split(dir, "-")}, nil
	}
	n, err := strconv.Atoi(lun)
	if err != nil || before == "" {
		return nil, fmt.Errorf("%s is no directory of a Fibre Channel disk", dir)
	}
	return &FC{wwns: strings.Split(before, "-"), lun: n}, nil
}

// attach returns the name of the disk's block device. If udev has no multipath device for it, it looks
// again after a scan of all hosts.
func (d *FC) attach(ctx context.Context, h Host, _ loginLock) (string, error) {
	disks := d.disks(h)
	for _, disk := range disks {
		if dm := h.multipath(disk); dm != "" {
			return dm, nil
		}
	}
	if err := h.scanAll(); err != nil {
		klog.FromContext(ctx).Info("not all SCSI hosts could be scanned", "disk", d, "err", err)
	}
	wait := look
	if len(disks) == 0 {
		wait = deviceWait
	}
	disks, err := d.await(ctx, h, wait)
	if err != nil {
		return "", err
	}
	return h.best(ctx, disks, 0), nil
}

// await waits for a disk that udev has a link to.
func (d *FC) await(ctx context.Context, h Host, wait time.Duration) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		if disks := d.disks(h); len(disks) > 0 {
			return disks, nil
		}
		if !await.For(ctx, look) {
			return nil, fmt.Errorf("no fc disk found: udev has no link to %v below %s after a scan "+
				"of all SCSI hosts; the fabric may not show it to this node", d,
				filepath.Join(h.Dev, "disk"))
		}
	}
}

// disks returns the names of the block devices that udev has links to, in the order of the volume's
// names.
func (d *FC) disks(h Host) (out []string) {
	add := func(link string) {
		to, err := filepath.EvalSymlinks(link)
		if disk := filepath.Base(to); err == nil && !slices.Contains(out, disk) {
			out = append(out, disk)
		}
	}
	for _, wwid := range d.wwids {
		add(filepath.Join(h.Dev, "disk/by-id", "scsi-"+wwid))
	}
	if len(d.wwns) == 0 {
		return out
	}
	dir := filepath.Join(h.Dev, "disk/by-path")
	links, _ := os.ReadDir(dir)
	for _, wwn := range d.wwns {
		is := regexp.MustCompile(fmt.Sprintf("^(pci-.*-fc|fc)-0x%s-lun-%d$", regexp.QuoteMeta(wwn),
			d.lun))
		for _, link := range links {
			if is.MatchString(link.Name()) {
				add(filepath.Join(dir, link.Name()))
			}
		}
	}
	return out
}

// detach has the kernel write what it keeps of the disk's devices, and forget them.
func (d *FC) detach(ctx context.Context, h Host, o others) error {
	if slices.ContainsFunc(o.disks, func(other Disk) bool {
		of, is := other.(*FC)
		return is && of.dir() == d.dir()
	}) {
		return nil
	}
	disks := d.disks(h)
	for _, disk := range disks {
		device := filepath.Join(h.Dev, disk)
		if _, err := h.do(ctx, "flush "+device, "blockdev", "--flushbufs", device); err != nil {
			klog.FromContext(ctx).Info("disk could not be flushed", "disk", d, "err", err)
		}
	}
	return h.drop(ctx, disks, o)
}

// hasNode reports whether a block device has its node.
func (h Host) hasNode(disk string) bool {
	_, err := os.Stat(filepath.Join(h.Dev, disk))
	return !errors.Is(err, fs.ErrNotExist)
}
