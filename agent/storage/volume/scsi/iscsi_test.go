package scsi

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/agent/storage/volume/operation"
)

const (
	iqn  = "iqn.2026-01.test:disks"
	dir0 = "iscsi/iface-default/10.0.0.1:3260-" + iqn + "-lun-0"
	dir1 = "iscsi/iface-default/10.0.0.1:3260-" + iqn + "-lun-1"
)

func source(lun int32, change ...func(*v1.ISCSIPersistentVolumeSource)) *v1.ISCSIPersistentVolumeSource {
	s := &v1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: iqn, Lun: lun,
		ISCSIInterface: "default", FSType: "ext4"}
	for _, f := range change {
		f(s)
	}
	return s
}

// request is a pod's wish for a LUN; volume "" is a device.
func request(t *testing.T, pod types.UID, volume string, s *v1.ISCSIPersistentVolumeSource) Request {
	t.Helper()
	disk, err := NewISCSI("pv"+string('0'+rune(s.Lun)), s, map[string]string{
		"discovery.sendtargets.auth.username": "du", "discovery.sendtargets.auth.password": "dp",
		"node.session.auth.username": "nu", "node.session.auth.password": "sesame",
		"node.session.auth.username_in": "iu", "node.session.auth.password_in": "ip",
	})
	if err != nil {
		t.Fatal(err)
	}
	return Request{Use: Use{pod, volume}, Disk: disk, FSType: s.FSType, Options: []string{"noatime"}}
}

const (
	db   = "iscsiadm -m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default "
	rec  = "iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I default "
	set0 = "-o update -n node.session.scan -v manual"
	set1 = "-o update -n node.startup -v manual"
)

func login() []string {
	return []string{db + "-o new", db + "--discover", rec + set0, rec + "--login", rec + set1}
}

func logout() []string { return []string{rec + "--logout", rec + "-o delete"} }

// A disk is logged in to with the kubelet's commands, its record is the kubelet's, and the last pod
// takes everything along. Two LUNs of a target have one session.
func TestSharedSession(t *testing.T) {
	n := newNode(t, 0, 1)
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		defer n.start(d)()
		first, second := request(t, "a", "v", source(0)), request(t, "b", "v", source(0))
		other := request(t, "c", "v", source(1))
		if err := n.use(d, first); err != nil {
			t.Fatal(err)
		}
		n.did(login()...)
		if scan := n.read("sys/class/scsi_host/host1/scan"); scan != "0 0 0" {
			t.Errorf("scanned %q", scan)
		}
		const record = `{"VolName":"pv0","Portals":["10.0.0.1:3260"],"Iqn":"` + iqn + `","Lun":"0",` +
			`"InitIface":"default","Iface":"default","InitiatorName":"","MetricsProvider":null}` + "\n"
		if got := n.read("kubelet/plugins/kubernetes.io/" + dir0 + "/iscsi.json"); got != record {
			t.Errorf("the record is %s", got)
		}
		m := n.mounts[0]
		if m.Device != n.path("dev/sda0") || m.Path != n.path("kubelet/plugins/kubernetes.io/"+dir0) ||
			strings.Join(m.Opts, ",") != "ext4,noatime" {
			t.Errorf("mounted %+v", m)
		}
		for _, r := range []Request{second, other} {
			if err := n.use(d, r); err != nil {
				t.Fatal(err)
			}
		}
		n.did() // there is a session
		want := []string{"kubernetes.io/iscsi/10.0.0.1:" + iqn + ":0", "kubernetes.io/iscsi/10.0.0.1:" + iqn + ":1"}
		if diff := cmp.Diff(want, d.InUse()); diff != "" {
			t.Error(diff)
		}
		n.leave(d, "a")
		synctest.Wait()
		if mounted, _ := n.Mounted(m.Path); !mounted {
			t.Error("the second pod has lost the disk")
		}
		n.leave(d, "b")
		synctest.Wait()
		n.did() // the other LUN needs the session
		if n.read("sys/block/sda0/device/delete") != "1" || n.read("sys/block/sda1/device/delete") != "" {
			t.Error("the kernel forgets the wrong disk")
		}
		n.leave(d, "c")
		synctest.Wait()
		n.did(logout()...)
		if left := n.left(); len(left) > 0 || n.sessions() > 0 || len(d.InUse()) > 0 {
			t.Errorf("left %q, %d sessions, in use %q", left, n.sessions(), d.InUse())
		}
	})
}

// A pod that has the disk as a device has a file in the disk's directory, which counts after a restart.
func TestBlock(t *testing.T) {
	n := newNode(t, 0)
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		stop := n.start(d)
		for _, pod := range []types.UID{"a", "b"} {
			if err := n.use(d, request(t, pod, "", source(0))); err != nil {
				t.Fatal(err)
			}
		}
		const dir = "iscsi/volumeDevices/iface-default/10.0.0.1:3260-" + iqn + "-lun-0"
		if !n.has("kubelet/plugins/kubernetes.io/"+dir+"/a") || !n.has("kubelet/plugins/kubernetes.io/"+dir+"/iscsi.json") {
			t.Errorf("there is %q", n.left())
		}
		stop()
		d = n.disks()
		defer n.start(d)()
		n.leave(d, "a")
		synctest.Wait()
		if n.sessions() != 1 || len(d.Holds("b")) != 1 || len(d.Holds("a")) != 0 {
			t.Errorf("%d sessions, b holds %v", n.sessions(), d.Holds("b"))
		}
		n.leave(d, "b")
		synctest.Wait()
		if left := n.left(); len(left) > 0 || n.sessions() > 0 {
			t.Errorf("left %q, %d sessions", left, n.sessions())
		}
	})
}

// CHAP's keys go into the records before they are used, and into no error.
func TestCHAP(t *testing.T) {
	chap := source(0, func(s *v1.ISCSIPersistentVolumeSource) {
		s.DiscoveryCHAPAuth, s.SessionCHAPAuth = true, true
	})
	n := newNode(t, 0)
	d := n.disks()
	if err := n.use(d, request(t, "a", "v", chap)); err != nil {
		t.Fatal(err)
	}
	n.did(db+"-o new",
		db+"-o update -n discovery.sendtargets.auth.authmethod -v CHAP",
		db+"-o update -n discovery.sendtargets.auth.username -v du",
		db+"-o update -n discovery.sendtargets.auth.password -v dp",
		db+"--discover", rec+set0,
		rec+"-o update -n node.session.auth.authmethod -v CHAP",
		rec+"-o update -n node.session.auth.username -v nu",
		rec+"-o update -n node.session.auth.password -v sesame",
		rec+"-o update -n node.session.auth.username_in -v iu",
		rec+"-o update -n node.session.auth.password_in -v ip",
		rec+"--login", rec+set1)
	n = newNode(t, 0)
	n.fails["auth.password "] = errors.New("sesame or dp is wrong")
	err := n.use(n.disks(), request(t, "a", "v", source(0, func(s *v1.ISCSIPersistentVolumeSource) {
		s.SessionCHAPAuth = true
	})))
	if err == nil || strings.Contains(err.Error(), "sesame") ||
		!strings.Contains(err.Error(), "set node.session.auth.password: *** or dp is wrong: iscsiadm: it cannot") {
		t.Errorf("the error is %v", err)
	}
}

// Every command that fails says which portal, what it did and what iscsiadm said; records that were
// made are deleted; and the pod's end leaves nothing.
func TestFailuresOfLogins(t *testing.T) {
	for name, test := range map[string]struct {
		part   string
		err    error
		want   string
		undone string
	}{
		"discovery": {"--discover", exit(4), "portal 10.0.0.1:3260: discover the targets: exit status 4: iscsiadm: it cannot",
			db + "-o delete"},
		"login": {"--login", exit(24), "portal 10.0.0.1:3260: log in: exit status 24: iscsiadm: it cannot",
			rec + "-o delete"},
		"no session": {"--login", exit(sessionExists), "sysfs has no session with that portal", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 0)
			synctest.Test(t, func(t *testing.T) {
				n.fails[test.part] = test.err
				d := n.disks()
				defer n.start(d)()
				err := n.use(d, request(t, "a", "v", source(0)))
				part := new(operation.Error)
				if !errors.As(err, &part) || part.Part != "WaitForAttach" ||
					!strings.Contains(err.Error(), "failed to get any path for iscsi disk, LUN 0 of iSCSI target "+iqn) ||
					!strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %s", err, test.want)
				}
				if test.undone != "" && !n.ranAny(test.undone) {
					t.Errorf("not undone: %q", n.ran)
				}
				delete(n.fails, test.part)
				n.leave(d, "a")
				synctest.Wait()
				if left := n.left(); len(left) > 0 || n.sessions() > 0 {
					t.Errorf("left %q, %d sessions", left, n.sessions())
				}
			})
		})
	}
}

// What fails without harm does not keep a pod from its disk.
func TestHarmlessFailures(t *testing.T) {
	n := newNode(t, 0)
	for _, part := range []string{set0, set1, "discoverydb -t sendtargets -p 10.0.0.1:3260 -I default -o new"} {
		n.fails[part] = exit(1)
	}
	if err := n.use(n.disks(), request(t, "a", "v", source(0))); err != nil {
		t.Error(err)
	}
}

// A LUN that the target does not show is waited for as long as by the kubelet.
func TestNoDevice(t *testing.T) {
	n := newNode(t, 0)
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		defer n.start(d)()
		began := time.Now()
		err := n.use(d, request(t, "a", "v", source(7)))
		if err == nil || !strings.Contains(err.Error(), "timed out waiting for the device of LUN 7 after 30s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took < deviceWait || took > deviceWait+look {
			t.Errorf("waited %v", took)
		}
		n.leave(d, "a")
		synctest.Wait()
		if n.sessions() > 0 || len(n.left()) > 0 {
			t.Errorf("left %q, %d sessions", n.left(), n.sessions())
		}
	})
}

// An unformatted or broken disk leaves it attached for the next attempt, and the end takes it along.
func TestFormatFails(t *testing.T) {
	n := newNode(t, 0)
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		defer n.start(d)()
		n.fails["format"] = errors.New("wrong fs type")
		err := n.use(d, request(t, "a", "v", source(0)))
		part := new(operation.Error)
		if !errors.As(err, &part) || part.Part != "MountDevice" || err.Error() !=
			"mount the file system on LUN 0 of iSCSI target "+iqn+", "+n.path("dev/sda0")+": wrong fs type" {
			t.Errorf("got %v", err)
		}
		n.leave(d, "a")
		synctest.Wait()
		if n.sessions() > 0 || len(n.left()) > 0 {
			t.Errorf("left %q, %d sessions", n.left(), n.sessions())
		}
	})
}

// Of several portals each gets a session. The multipath device is mounted, and is flushed before its
// disks are removed. One portal that is away is tried for two rounds if two others are there.
func TestPortals(t *testing.T) {
	for _, away := range []bool{false, true} {
		n := newNode(t, 0)
		synctest.Test(t, func(t *testing.T) {
			d := n.disks()
			defer n.start(d)()
			many := source(0, func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = []string{"10.0.0.2", "10.0.0.3:3261"} })
			if away {
				n.fails["-p 10.0.0.2:3260 -I default --discover"] = exit(4)
			}
			n.multipath("dm-3", "sda0", "sdb0")
			if err := n.use(d, request(t, "a", "v", many)); err != nil {
				t.Fatal(err)
			}
			tries := strings.Count(strings.Join(n.ran, "\n"), "-p 10.0.0.2:3260 -I default --discover")
			if n.mounts[0].Device != n.path("dev/dm-3") || away && tries != 2 || !away && (tries != 1 || n.sessions() != 3) {
				t.Errorf("away %t: mounted %v, %d tries, %d sessions", away, n.mounts[0].Device, tries, n.sessions())
			}
			n.did(n.ran...)
			n.leave(d, "a")
			synctest.Wait()
			if n.has("sys/block/dm-3") || n.read("sys/block/sda0/device/delete") != "1" ||
				n.read("sys/block/sdb0/device/delete") != "1" {
				t.Errorf("away %t: ran %q", away, n.ran)
			}
			if n.sessions() > 0 || len(n.left()) > 0 {
				t.Errorf("away %t: left %q, %d sessions", away, n.left(), n.sessions())
			}
		})
	}
}

// A volume of several portals without a multipath device has its first disk, after a pause.
func TestPortalsWithoutMultipath(t *testing.T) {
	n := newNode(t, 0)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		many := source(0, func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = []string{"10.0.0.2"} })
		n.fails["10.0.0.2"] = exit(4)
		if err := n.use(n.disks(), request(t, "a", "v", many)); err != nil {
			t.Fatal(err)
		}
		tries := strings.Count(strings.Join(n.ran, "\n"), "-p 10.0.0.2:3260 -I default --discover")
		if n.mounts[0].Device != n.path("dev/sda0") || tries != mostRounds || time.Since(began) < multipathWait {
			t.Errorf("mounted %v after %v and %d tries", n.mounts[0].Device, time.Since(began), tries)
		}
	})
}

// A volume that names an initiator has an interface of its own, which is made of the one it names and
// removed with it. It does not take a session of another initiator.
func TestInitiator(t *testing.T) {
	n := newNode(t, 0, 1)
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		defer n.start(d)()
		if err := n.use(d, request(t, "a", "v", source(1))); err != nil {
			t.Fatal(err)
		}
		n.did(login()...)
		own := source(0, func(s *v1.ISCSIPersistentVolumeSource) { s.InitiatorName = ptr.To("iqn.2026-01.test:me") })
		if err := n.use(d, request(t, "b", "v", own)); err != nil {
			t.Fatal(err)
		}
		const iface = "iscsiadm -m iface -I 10.0.0.1:3260:pv0 "
		want := append([]string{"iscsiadm -m iface -I default -o show", iface + "-o new",
			iface + "-o update -n iface.initiatorname -v iqn.2026-01.test:me",
			iface + "-o update -n iface.transport_name -v tcp"}, login()...)
		for i := range want[4:] {
			want[4+i] = strings.Replace(want[4+i], "-I default", "-I 10.0.0.1:3260:pv0", 1)
		}
		n.did(want...)
		if !n.has("kubelet/plugins/kubernetes.io/iscsi/iface-10.0.0.1:3260:pv0/10.0.0.1:3260-"+iqn+"-lun-0") || n.sessions() != 2 {
			t.Errorf("there is %q, %d sessions", n.left(), n.sessions())
		}
		n.leave(d, "b")
		synctest.Wait()
		const own2 = "iscsiadm -m node -p 10.0.0.1:3260 -T " + iqn + " -I 10.0.0.1:3260:pv0 "
		n.did(own2+"--logout", own2+"-o delete", iface+"-o delete")
		n.leave(d, "a")
		synctest.Wait()
		n.did(logout()...)
		if n.sessions() > 0 || len(n.left()) > 0 {
			t.Errorf("left %q, %d sessions", n.left(), n.sessions())
		}
		n.fails["iface.initiatorname"] = exit(6)
		if err := n.use(d, request(t, "b", "v", own)); err == nil ||
			!strings.Contains(err.Error(), "set iface.initiatorname: exit status 6") || !n.ranAny(iface+"-o delete") {
			t.Errorf("got %v, ran %q", err, n.ran)
		}
	})
}

// Wherever the agent was killed, the next one ends what no pod has, also what a kubelet began.
func TestAfterKills(t *testing.T) {
	const dir = "kubelet/plugins/kubernetes.io/" + dir0
	at := func(n *fakeNode) string { return n.path(dir) }
	for name, was := range map[string]func(t *testing.T, n *fakeNode){
		"the directory is made": func(_ *testing.T, n *fakeNode) { n.mkdir(dir) },
		"the record is half":    func(_ *testing.T, n *fakeNode) { n.write(dir+"/iscsi.json", `{"VolName":"p`) },
		"logged in": func(t *testing.T, n *fakeNode) {
			recorded(t, n)
			n.session("10.0.0.1:3260", iqn, "default")
		},
		"logged in at a portal that only the record has": func(t *testing.T, n *fakeNode) {
			n.mkdir(dir)
			many := source(0, func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = []string{"10.0.0.2"} })
			if err := request(t, "a", "v", many).Disk.(*ISCSI).write(at(n)); err != nil {
				t.Error(err)
			}
			n.session("10.0.0.1:3260", iqn, "default")
			n.session("10.0.0.2:3260", iqn, "default")
		},
		"mounted": func(t *testing.T, n *fakeNode) {
			recorded(t, n)
			n.session("10.0.0.1:3260", iqn, "default")
			n.mount(n.path("dev/sda0"), at(n))
		},
		"unmounted, the disk removed": func(t *testing.T, n *fakeNode) {
			recorded(t, n)
			n.luns = nil
			n.session("10.0.0.1:3260", iqn, "default")
		},
		"logged out":  recorded,
		"as a device": func(_ *testing.T, n *fakeNode) { n.mkdir(strings.Replace(dir, "iscsi/", "iscsi/volumeDevices/", 1)) },
		"by another interface, as a kubelet does": func(_ *testing.T, n *fakeNode) {
			n.mkdir("kubelet/plugins/kubernetes.io/iscsi/iface-x/10.0.0.1:3260-" + iqn + "-lun-0")
			n.session("10.0.0.1:3260", iqn, "default")
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, 0)
			was(t, n)
			synctest.Test(t, func(t *testing.T) {
				d := n.disks()
				if len(d.InUse()) == 0 {
					t.Error("nothing is in use")
				}
				stop := n.start(d)
				if name == "the record is half" || name == "logged out" {
					time.Sleep(commandWait) // a login might have begun
				}
				synctest.Wait()
				stop()
				if left := n.left(); len(left) > 0 || n.sessions() > 0 || len(d.InUse()) > 0 {
					t.Errorf("left %q, %d sessions, in use %q", left, n.sessions(), d.InUse())
				}
			})
		})
	}
}

func recorded(t *testing.T, n *fakeNode) {
	n.mkdir("kubelet/plugins/kubernetes.io/" + dir0)
	if err := request(t, "a", "v", source(0)).Disk.(*ISCSI).write(n.path("kubelet/plugins/kubernetes.io/" + dir0)); err != nil {
		t.Error(err)
	}
}

// A pod that has the disk keeps it over a restart: its mount says so. Both names that the controller may
// have for the volume are in use.
func TestPodsKeepDisks(t *testing.T) {
	n := newNode(t, 0)
	synctest.Test(t, func(t *testing.T) {
		if err := n.use(n.disks(), request(t, "a", "v", source(0))); err != nil {
			t.Fatal(err)
		}
		d := n.disks()
		defer n.start(d)()
		synctest.Wait()
		if n.sessions() != 1 || len(d.Holds("a")) != 1 {
			t.Errorf("%d sessions, the pod holds %v", n.sessions(), d.Holds("a"))
		}
		want := []string{"kubernetes.io/iscsi/10.0.0.1:3260:" + iqn + ":0", "kubernetes.io/iscsi/10.0.0.1:" + iqn + ":0"}
		if diff := cmp.Diff(want, d.InUse()); diff != "" {
			t.Error(diff)
		}
		d.Want(request(t, "a", "v", source(0)))
		if diff := cmp.Diff(want[1:], d.InUse()); diff != "" {
			t.Error(diff)
		}
	})
}

// What others have of a disk, or of another disk of its session, is not taken from them.
func TestDisksOfOthers(t *testing.T) {
	n := newNode(t, 0, 1)
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		defer n.start(d)()
		if err := n.use(d, request(t, "a", "v", source(0))); err != nil {
			t.Fatal(err)
		}
		n.did(login()...)
		n.mount(n.path("dev/sda0"), "/mnt") // somebody's, by hand
		n.mount(n.path("dev/sda1"), "/srv")
		n.leave(d, "a")
		synctest.Wait()
		if n.sessions() != 1 || n.read("sys/block/sda0/device/delete") != "" || len(d.InUse()) != 1 {
			t.Errorf("%d sessions, in use %q", n.sessions(), d.InUse())
		}
		if err := n.Unmount(t.Context(), "/mnt"); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		n.did() // the session is needed for the other disk
		if n.read("sys/block/sda0/device/delete") != "1" || len(d.InUse()) > 0 {
			t.Errorf("the disk is not removed; in use %q", d.InUse())
		}
	})
}

// A disk waits until the node's status has it as attached, and its pod is woken then.
func TestAttached(t *testing.T) {
	n := newNode(t, 0)
	n.attached = map[string]bool{}
	d := n.disks()
	r := request(t, "a", "v", source(0))
	err := n.use(d, r)
	const want = "is not attached according to the node's status: waiting for the attach-detach controller"
	if err == nil || !strings.Contains(err.Error(), want) || n.used != 1 {
		t.Errorf("got %v, told %d times", err, n.used)
	}
	n.did()
	d.AttachedChanged()
	if len(n.woken) > 0 {
		t.Errorf("woken %q", n.woken)
	}
	n.attached[r.Name()] = true
	if d.AttachedChanged(); len(n.woken) != 1 {
		t.Errorf("woken %q", n.woken)
	}
	if err := n.use(d, r); err != nil {
		t.Error(err)
	}
	if d.AttachedChanged(); len(n.woken) != 1 {
		t.Errorf("woken %q", n.woken)
	}
}

// A pod that ends while it waits for its disk leaves nothing, and is no longer waited for.
func TestLeavesBeforeItHas(t *testing.T) {
	n := newNode(t, 0)
	n.attached = map[string]bool{}
	d := n.disks()
	r := request(t, "a", "v", source(0))
	d.Want(r)
	n.leave(d, "a")
	if used := d.InUse(); len(used) > 0 || n.used != 2 {
		t.Errorf("in use %q, told %d times", used, n.used)
	}
	if err := d.SetUp(t.Context(), r, nil); !errors.Is(err, errGone) {
		t.Errorf("got %v", err)
	}
}

// A target that hangs keeps only the pods with its disks.
func TestHangs(t *testing.T) {
	n := newNode(t, 0)
	synctest.Test(t, func(t *testing.T) {
		n.hang = make(chan struct{})
		d := n.disks()
		done := make(chan error, 1)
		go func() { done <- n.use(d, request(t, "a", "v", source(0))) }()
		synctest.Wait()
		n.mu.Lock()
		hang := n.hang
		n.hang = nil
		n.mu.Unlock()
		other := source(0, func(s *v1.ISCSIPersistentVolumeSource) { s.IQN, s.TargetPortal = "iqn.2026-01.test:other", "10.0.0.9" })
		if err := n.use(d, request(t, "b", "v", other)); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		again := request(t, "c", "v", source(0))
		d.Want(again)
		if err := d.SetUp(ctx, again, nil); err == nil || !strings.Contains(err.Error(), "is busy") {
			t.Errorf("got %v", err)
		}
		close(hang)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A command that does not end is ended.
func TestCommandHangs(t *testing.T) {
	n := newNode(t, 0)
	synctest.Test(t, func(t *testing.T) {
		n.hang = make(chan struct{})
		err := n.use(n.disks(), request(t, "a", "v", source(0)))
		if err == nil || !strings.Contains(err.Error(), "log in: it did not end within 2m10s") {
			t.Errorf("got %v", err)
		}
	})
}

// A tool that is missing is named, with its package, and so is what a real command says.
func TestCommands(t *testing.T) {
	host := TheHost()
	t.Setenv("PATH", t.TempDir())
	if _, err := host.do(t.Context(), "log in", "iscsiadm"); err == nil || err.Error() !=
		"log in: iscsiadm is not installed on the node; install open-iscsi of Debian, iscsi-initiator-utils of Fedora" {
		t.Errorf("got %v", err)
	}
	script := os.Getenv("PATH") + "/iscsiadm"
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho said; echo cried >&2; exit 21\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := host.do(t.Context(), "log in", "iscsiadm")
	if err == nil || exitCode(err) != noObjects || !strings.HasPrefix(err.Error(), "log in: exit status 21: said") ||
		!strings.Contains(err.Error(), "cried") {
		t.Errorf("got %v, code %d", err, exitCode(err))
	}
}

// What cannot be part of a path or would be an option is refused.
func TestWrongSources(t *testing.T) {
	for want, change := range map[string]func(*v1.ISCSIPersistentVolumeSource){
		`targetPortal "a/b" cannot be part of a path`:       func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = "a/b" },
		`portal "-x:3260" cannot be part of a path`:         func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = []string{"-x"} },
		`iqn "" cannot be part of a path`:                   func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "" },
		`iqn "disk" is no name of a target`:                 func(s *v1.ISCSIPersistentVolumeSource) { s.IQN = "disk" },
		`iscsiInterface "../x" cannot be part of a path`:    func(s *v1.ISCSIPersistentVolumeSource) { s.ISCSIInterface = "../x" },
		"lun -1 is negative":                                func(s *v1.ISCSIPersistentVolumeSource) { s.Lun = -1 },
		"the volume names 65 portals; at most 64 are tried": func(s *v1.ISCSIPersistentVolumeSource) { s.Portals = make([]string, 64) },
	} {
		if _, err := NewISCSI("pv", source(0, change), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// A directory is the kubelet's name of the disk, and leads back to it.
func TestNames(t *testing.T) {
	for portal, dir := range map[string]string{
		"10.0.0.1":      "iface-default/10.0.0.1:3260-" + iqn + "-lun-3",
		"10.0.0.1:860":  "iface-default/10.0.0.1:860-" + iqn + "-lun-3",
		"[fd00::1]":     "iface-default/[fd00::1]-" + iqn + "-lun-3",
		"[fd00::1]:860": "iface-default/[fd00::1]:860-" + iqn + "-lun-3",
		"san.test":      "iface-default/san.test:3260-" + iqn + "-lun-3",
	} {
		disk, err := NewISCSI("pv", source(3, func(s *v1.ISCSIPersistentVolumeSource) { s.TargetPortal = portal }), nil)
		if err != nil || disk.dir() != dir {
			t.Errorf("%s: %s, %v", portal, disk.dir(), err)
			continue
		}
		found, err := foundISCSI(dir)
		if err != nil || found.dir() != dir || found.(*ISCSI).iqn != iqn || found.(*ISCSI).lun != 3 {
			t.Errorf("%s: found %+v, %v", dir, found, err)
		}
	}
	for portal, want := range map[string]string{"[fd00:0::1]": "[fd00::1]:3260", "fd00::1": "[fd00::1]:3260",
		"10.0.0.1": "10.0.0.1:3260", "10.0.0.1:860": "10.0.0.1:860", "san.test": "san.test:3260"} {
		if got := plain(portal); got != want {
			t.Errorf("%s is %s, want %s", portal, got, want)
		}
	}
	for _, dir := range []string{"iface-default/x", "iface-default/10.0.0.1:3260-" + iqn + "-lun-x", "x/y", "iface-a/-lun-0-iqn.x"} {
		if found, err := foundISCSI(dir); err == nil {
			t.Errorf("%s is %v", dir, found)
		}
	}
}

// Sessions without a record, of logins that outlived their agents, are ended as such.
func TestSessionWithoutRecord(t *testing.T) {
	n := newNode(t, 0)
	n.unrecorded = true
	recorded(t, n)
	n.session("10.0.0.1:3260", iqn, "default")
	n.session("10.0.0.1:3260", iqn, "default")
	synctest.Test(t, func(t *testing.T) {
		d := n.disks()
		stop := n.start(d)
		synctest.Wait()
		stop()
		const end = "iscsiadm -m session -r "
		n.did(append(logout(), end+"1 --logout", end+"2 --logout")...)
		if left := n.left(); len(left) > 0 || n.sessions() > 0 {
			t.Errorf("left %q, %d sessions", left, n.sessions())
		}
	})
}

// The last two disks of a target that end at once do not keep the session for each other.
func TestEndTogether(t *testing.T) {
	for range 50 {
		n := newNode(t, 0, 1)
		synctest.Test(t, func(t *testing.T) {
			d := n.disks()
			for _, lun := range []int32{0, 1} {
				if err := n.use(d, request(t, "a", "v"+string('0'+rune(lun)), source(lun))); err != nil {
					t.Fatal(err)
				}
			}
			n.leave(d, "a")
			stop := n.start(d)
			synctest.Wait()
			stop()
			if n.sessions() > 0 || len(n.left()) > 0 {
				t.Errorf("left %q, %d sessions", n.left(), n.sessions())
			}
		})
	}
}
