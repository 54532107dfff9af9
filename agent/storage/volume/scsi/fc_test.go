package scsi

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// link makes a link of udev.
func (n *fakeNode) link(path, disk string) {
	if err := os.Symlink("../../"+disk, n.path("dev/disk/"+path)); err != nil {
		n.t.Error(err)
	}
}

func byWWN() *v1.FCVolumeSource {
	return &v1.FCVolumeSource{TargetWWNs: []string{"500a0982991b8dc5", "500a0982891b8dc5"}, Lun: ptr.To[int32](2)}
}

func fcRequest(t *testing.T, pod types.UID, volume string, s *v1.FCVolumeSource) Request {
	t.Helper()
	disk, err := NewFC(s)
	if err != nil {
		t.Fatal(err)
	}
	return Request{Use: Use{pod, volume}, Disk: disk}
}

// A disk is found by each of its names, after a scan of all hosts if need be, and the multipath device
// is preferred. At the end it is flushed, and the kernel forgets all of its paths.
func TestFibreChannel(t *testing.T) {
	const dir = "kubelet/plugins/kubernetes.io/fc/"
	for name, test := range map[string]struct {
		source *v1.FCVolumeSource
		links  map[string]string
		dir    string
		unique string
		paths  string // multipath
		want   string
		gone   []string
	}{
		"by a path": {source: byWWN(), links: map[string]string{
			"by-path/pci-0000:41:00.0-fc-0x500a0982891b8dc5-lun-2": "sda",
			"by-path/pci-0000:41:00.0-fc-0x500a0982891b8dc5-lun-3": "sdb",
			"by-path/pci-0000:41:00.0-fc-0x500a0982891b8dc50lun-2": "sdb",
		}, dir: "500a0982991b8dc5-500a0982891b8dc5-lun-2", unique: "[500a0982991b8dc5 500a0982891b8dc5]:2",
			want: "sda", gone: []string{"sda"}},
		"by two paths": {source: byWWN(), links: map[string]string{
			"by-path/fc-0x500a0982991b8dc5-lun-2":                  "sda",
			"by-path/pci-0000:41:00.0-fc-0x500a0982891b8dc5-lun-2": "sdb",
		}, dir: "500a0982991b8dc5-500a0982891b8dc5-lun-2", unique: "[500a0982991b8dc5 500a0982891b8dc5]:2",
			paths: "dm-1", want: "dm-1", gone: []string{"sda", "sdb"}},
		"by its name": {source: &v1.FCVolumeSource{WWIDs: []string{"3600508b400105e21"}},
			links: map[string]string{"by-id/scsi-3600508b400105e21": "sda", "by-id/scsi-3600508b400105e21-part1": "sdb"},
			dir:   "3600508b400105e21", unique: "[3600508b400105e21]", want: "sda", gone: []string{"sda"}},
		"by a vendor's name": {source: &v1.FCVolumeSource{WWIDs: []string{"ACME disk 1"}},
			links: map[string]string{"by-id/scsi-ACME_disk_1": "dm-1"}, dir: "ACME_disk_1",
			unique: "[ACME_disk_1]", paths: "dm-1", want: "dm-1", gone: []string{"sda", "sdb"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.disk("sda")
			n.disk("sdb")
			n.write("sys/class/scsi_host/host4/scan", "")
			if test.paths != "" {
				n.multipath(test.paths, "sda", "sdb")
			}
			for path, disk := range test.links {
				n.link(path, disk)
			}
			synctest.Test(t, func(t *testing.T) {
				d := n.disks()
				defer n.start(d)()
				if err := n.use(d, fcRequest(t, "a", "v", test.source)); err != nil {
					t.Fatal(err)
				}
				m := n.mounts[0]
				if m.Device != n.path("dev/"+test.want) || m.Path != n.path(dir+test.dir) {
					t.Errorf("mounted %+v", m)
				}
				if diff := cmp.Diff([]string{"kubernetes.io/fc/" + test.unique}, d.InUse()); diff != "" {
					t.Error(diff)
				}
				if scan := n.read("sys/class/scsi_host/host4/scan"); (scan == "- - -") != (test.paths == "") {
					t.Errorf("scanned %q", scan)
				}
				n.leave(d, "a")
				synctest.Wait()
				for _, disk := range []string{"sda", "sdb"} {
					gone := n.read("sys/block/"+disk+"/device/delete") == "1"
					if want := strings.Contains(strings.Join(test.gone, " "), disk); gone != want {
						t.Errorf("%s: removed %t", disk, gone)
					}
				}
				if !n.ranAny("blockdev --flushbufs") || n.ranAny("multipath -f") != (test.paths != "") {
					t.Errorf("ran %q", n.ran)
				}
				if left := n.left(); len(left) > 0 || len(d.InUse()) > 0 {
					t.Errorf("left %q, in use %q", left, d.InUse())
				}
			})
		})
	}
}

// A disk that the fabric does not show is waited for; one that comes after the scan is taken.
func TestFibreChannelWaits(t *testing.T) {
	n := newNode(t)
	n.disk("sda")
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		began := time.Now()
		err := n.use(d, fcRequest(t, "a", "v", byWWN()))
		if err == nil || !strings.Contains(err.Error(), "no fc disk found: udev has no link to LUN 2 of Fibre "+
			"Channel targets 500a0982991b8dc5, 500a0982891b8dc5 below") || time.Since(began) < deviceWait {
			t.Errorf("got %v after %v", err, time.Since(began))
		}
		time.AfterFunc(5*time.Second, func() { n.link("by-path/fc-0x500a0982991b8dc5-lun-2", "sda") })
		if err := n.use(d, fcRequest(t, "a", "v", byWWN())); err != nil {
			t.Error(err)
		}
	})
}

// After a kill, a disk that no pod has is taken back by its directory, and one that a pod has as a
// device is kept.
func TestFibreChannelAfterKills(t *testing.T) {
	n := newNode(t)
	n.disk("sda")
	n.link("by-id/scsi-3600508b400105e21", "sda")
	synctest.Test(t, func(t *testing.T) {
		s := &v1.FCVolumeSource{WWIDs: []string{"3600508b400105e21"}}
		if err := n.use(n.disks(), fcRequest(t, "a", "", s)); err != nil {
			t.Fatal(err)
		}
		n.mkdir("kubelet/plugins/kubernetes.io/fc/500a0982991b8dc5-lun-2") // whose disk is gone
		d := n.disks()
		stop := n.start(d)
		synctest.Wait()
		if n.read("sys/block/sda/device/delete") != "" || len(d.Holds("a")) != 1 {
			t.Errorf("the pod holds %v", d.Holds("a"))
		}
		n.leave(d, "a")
		synctest.Wait()
		stop()
		if left := n.left(); len(left) > 0 || n.read("sys/block/sda/device/delete") != "1" {
			t.Errorf("left %q", left)
		}
	})
}

// A disk's file system and the disk as a device are two volumes: the end of one does not take the disk
// from the other.
func TestFibreChannelTwice(t *testing.T) {
	n := newNode(t)
	n.disk("sda")
	n.link("by-id/scsi-x", "sda")
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		defer n.start(d)()
		for _, r := range []Request{
			fcRequest(t, "a", "", &v1.FCVolumeSource{WWIDs: []string{"x"}}),
			fcRequest(t, "b", "v", &v1.FCVolumeSource{WWIDs: []string{"x"}}),
		} {
			if err := n.use(d, r); err != nil {
				t.Fatal(err)
			}
		}
		n.leave(d, "b")
		synctest.Wait()
		if n.read("sys/block/sda/device/delete") != "" {
			t.Error("the disk is removed")
		}
		n.leave(d, "a")
		synctest.Wait()
		if n.read("sys/block/sda/device/delete") != "1" || len(n.left()) > 0 {
			t.Errorf("left %q", n.left())
		}
	})
}

// Sources without a disk, and those that are no part of a path, are refused. Strange directories are
// left alone.
func TestWrongFibreChannel(t *testing.T) {
	for want, s := range map[string]*v1.FCVolumeSource{
		"no fc disk information found":                                       {TargetWWNs: []string{"x"}},
		`name of a Fibre Channel disk "a/b" cannot be part of a path`:        {WWIDs: []string{"a/b"}},
		`name of a Fibre Channel disk ".." cannot be part of a path`:         {TargetWWNs: []string{".."}, Lun: ptr.To[int32](0)},
		"the volume names 65 paths; at most 64 are tried":                    {WWIDs: make([]string, 65)},
		"no fc disk information found: name targetWWNs with a lun, or wwids": {},
	} {
		if _, err := NewFC(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	n := newNode(t)
	n.mkdir("kubelet/plugins/kubernetes.io/fc/x-lun-y")
	if d := n.disks(); len(d.InUse()) > 0 || !n.has("kubelet/plugins/kubernetes.io/fc/x-lun-y") {
		t.Errorf("in use %q", d.InUse())
	}
}
