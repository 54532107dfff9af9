package scsi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"

	"github.com/numalet/numalet/internal/await"
)

// node is a node with a fake sysfs and fake commands, a target with portals, and mounts in memory.
type fakeNode struct {
	t    *testing.T
	root string
	luns []int // that the target shows

	mu     sync.Mutex // guards the fields below
	ran    []string   // commands
	fails  map[string]error
	mounts []mount.MountPoint
	woken  []types.UID
	used   int
	hosts  int // SCSI hosts made
	// attached has the volumes of the node's status; nil: nobody attaches.
	attached map[string]bool
	hang     chan struct{} // logins wait for it
	busy     error         // of unmounts
	// unrecorded: iscsiadm has no record of sessions.
	unrecorded bool
	booted     time.Time
}

// exit is a command's exit code.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

func newNode(t *testing.T, luns ...int) *fakeNode {
	n := &fakeNode{t: t, root: t.TempDir(), luns: luns, fails: map[string]error{}}
	for _, dir := range []string{"sys/class/iscsi_host", "sys/class/scsi_host", "sys/block", "dev/disk/by-path",
		"dev/disk/by-id", "kubelet/pods"} {
		n.mkdir(dir)
	}
	return n
}

func (n *fakeNode) path(path string) string { return filepath.Join(n.root, path) }

func (n *fakeNode) mkdir(path string) {
	if err := os.MkdirAll(n.path(path), 0o755); err != nil {
		n.t.Error(err)
	}
}

func (n *fakeNode) write(path, text string) {
	n.mkdir(filepath.Dir(path))
	if err := os.WriteFile(n.path(path), []byte(text), 0o644); err != nil {
		n.t.Error(err)
	}
}

// aged has the record of the first disk be of that time.
func (n *fakeNode) aged(then time.Time) {
	if err := os.Chtimes(n.path("kubelet/plugins/kubernetes.io/"+dir0+"/iscsi.json"), then, then); err != nil {
		n.t.Error(err)
	}
}

func (n *fakeNode) read(path string) string {
	text, err := os.ReadFile(n.path(path))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (n *fakeNode) has(path string) bool {
	_, err := os.Lstat(n.path(path))
	return err == nil
}

// disks starts what has the node's disks, and ends it with the test.
func (n *fakeNode) disks(change ...func(*Config)) *Disks {
	c := Config{Root: n.path("kubelet"), Mounts: n, Used: func() { n.mu.Lock(); n.used++; n.mu.Unlock() },
		Host:   Host{Sys: n.path("sys"), Dev: n.path("dev"), Booted: n.booted, Run: n.run},
		Pauses: await.Pauses{First: time.Second, Last: time.Second},
		Wake:   func(pod types.UID) { n.mu.Lock(); n.woken = append(n.woken, pod); n.mu.Unlock() }}
	if n.attached != nil {
		c.Attached = func(name string) bool { n.mu.Lock(); defer n.mu.Unlock(); return n.attached[name] }
	}
	for _, f := range change {
		f(&c)
	}
	return New(c)
}

// start runs them until stop is called.
func (n *fakeNode) start(d *Disks) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() { _ = d.Run(ctx) })
	return func() { cancel(); ended.Wait() }
}

// run is iscsiadm with a target that has the portals 10.0.0.1 to 10.0.0.9, multipath and blockdev.
func (n *fakeNode) run(ctx context.Context, name string, args ...string) ([]byte, error) {
	line := strings.Join(append([]string{name}, args...), " ")
	after := func(flag string) string {
		if at := slices.Index(args, flag); at >= 0 && at+1 < len(args) {
			return args[at+1]
		}
		return ""
	}
	n.mu.Lock()
	n.ran = append(n.ran, line)
	hang := n.hang
	for part, err := range n.fails {
		if strings.Contains(line, part) {
			n.mu.Unlock()
			return []byte("iscsiadm: it cannot\n"), err
		}
	}
	n.mu.Unlock()
	switch {
	case name == "multipath":
		dm := filepath.Base(after("-f"))
		return nil, os.RemoveAll(n.path("sys/block/" + dm))
	case slices.Contains(args, "show"):
		return []byte("# BEGIN RECORD 2.1.8\niface.iscsi_ifacename = default\niface.net_ifacename = <empty>\n" +
			"iface.transport_name = tcp\n# END RECORD\n"), nil
	case slices.Contains(args, "--login"):
		if hang != nil {
			select {
			case <-hang:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		n.session(after("-p"), after("-T"), after("-I"))
	case slices.Contains(args, "--logout") && after("-m") == "session":
		return nil, os.RemoveAll(n.path("sys/class/iscsi_host/host" + after("-r")))
	case slices.Contains(args, "--logout"):
		if n.unrecorded {
			return []byte("iscsiadm: No records found\n"), exit(noObjects)
		}
		if !n.endSession(after("-p"), after("-T"), after("-I")) {
			return []byte("iscsiadm: No matching sessions found\n"), exit(noObjects)
		}
	}
	return nil, nil
}

// session makes a session as the kernel shows it, with a device for each LUN.
func (n *fakeNode) session(portal, iqn, iface string) {
	n.mu.Lock()
	n.hosts++
	host := n.hosts
	n.mu.Unlock()
	dir := fmt.Sprintf("sys/class/iscsi_host/host%d/device/session%[1]d", host)
	n.write(fmt.Sprintf("%s/iscsi_session/session%d/targetname", dir, host), iqn+"\n")
	n.write(fmt.Sprintf("%s/iscsi_session/session%d/ifacename", dir, host), iface+"\n")
	connection := fmt.Sprintf("%s/connection%d:0/iscsi_connection/connection%[2]d:0", dir, host)
	address, port, _ := strings.Cut(plain(portal), ":")
	for _, kind := range []string{"", "persistent_"} {
		n.write(connection+"/"+kind+"address", address+"\n")
		n.write(connection+"/"+kind+"port", port+"\n")
	}
	n.write(fmt.Sprintf("sys/class/scsi_host/host%d/scan", host), "")
	for _, lun := range n.luns {
		disk := fmt.Sprintf("sd%c%d", 'a'+host-1, lun)
		n.mkdir(fmt.Sprintf("%s/target%d:0:0/%[2]d:0:0:%d/block/%s", dir, host, lun, disk))
		n.disk(disk)
	}
}

// disk makes a block device.
func (n *fakeNode) disk(name string) {
	n.write("sys/block/"+name+"/device/delete", "")
	n.mkdir("sys/block/" + name + "/holders")
	n.write("dev/"+name, "")
}

// multipath makes a multipath device on disks.
func (n *fakeNode) multipath(name string, disks ...string) {
	n.write("sys/block/"+name+"/dm/uuid", "mpath-36001405\n")
	n.write("dev/"+name, "")
	for _, disk := range disks {
		n.mkdir("sys/block/" + name + "/slaves/" + disk)
	}
}

func (n *fakeNode) endSession(portal, iqn, iface string) bool {
	all, err := Host{Sys: n.path("sys")}.sessions(iqn)
	if err != nil {
		n.t.Error(err)
	}
	for _, s := range all {
		if (node{portal, iqn, iface}).is(s) {
			return os.RemoveAll(filepath.Dir(filepath.Dir(s.dir))) == nil
		}
	}
	return false
}

// sessions counts the sessions.
func (n *fakeNode) sessions() int {
	all, _ := filepath.Glob(n.path("sys/class/iscsi_host/*"))
	return len(all)
}

// did compares the commands since the last call.
func (n *fakeNode) did(want ...string) {
	n.t.Helper()
	n.mu.Lock()
	got := n.ran
	n.ran = nil
	n.mu.Unlock()
	if !slices.Equal(got, want) {
		n.t.Errorf("ran\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// ranAny reports whether a command with that text was run.
func (n *fakeNode) ranAny(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.ContainsFunc(n.ran, func(line string) bool { return strings.Contains(line, text) })
}

// mount mounts a device.
func (n *fakeNode) mount(device, path string, options ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mounts = append(n.mounts, mount.MountPoint{Device: device, Path: path, Opts: options})
}

func (n *fakeNode) List() ([]mount.MountPoint, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mounts), nil
}

func (n *fakeNode) Mounted(path string) (bool, error) {
	all, _ := n.List()
	return slices.ContainsFunc(all, func(m mount.MountPoint) bool { return m.Path == path }), nil
}

func (n *fakeNode) Format(device, path, fstype string, options []string) error {
	if err := n.fails["format"]; err != nil {
		return err
	}
	n.mount(device, path, append([]string{fstype}, options...)...)
	return nil
}

func (n *fakeNode) Unmount(_ context.Context, path string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy != nil {
		return n.busy
	}
	n.mounts = slices.DeleteFunc(n.mounts, func(m mount.MountPoint) bool { return m.Path == path })
	return nil
}

// podPath is where a pod has a volume.
func (n *fakeNode) podPath(kind string, u Use) string {
	return n.path("kubelet/pods/" + string(u.Pod) + "/volumes/" + pathName(kind) + "/" + u.Volume)
}

// use has a pod use a disk, with a mount of its own.
func (n *fakeNode) use(d *Disks, r Request) error {
	d.Want(r)
	return d.SetUp(context.Background(), r, func(at, file string) error {
		if r.Volume == "" {
			return os.WriteFile(file, nil, 0o600)
		}
		all, _ := n.List()
		i := slices.IndexFunc(all, func(m mount.MountPoint) bool { return m.Path == at })
		if i < 0 {
			return errors.New("nothing is mounted")
		}
		n.mount(all[i].Device, n.podPath(r.kind(), r.Use))
		return nil
	})
}

// leave has a pod give up all its disks.
func (n *fakeNode) leave(d *Disks, pod types.UID) {
	n.t.Helper()
	for _, h := range d.Holds(pod) {
		if err := d.Leave(context.Background(), h, func() error {
			if h.File != "" {
				return os.Remove(h.File)
			}
			return n.Unmount(context.Background(), n.podPath(h.Kind, h.Use))
		}); err != nil {
			n.t.Error(err)
		}
	}
}

// left returns what the node still has of disks.
func (n *fakeNode) left() (out []string) {
	for _, pattern := range []string{"kubelet/plugins/kubernetes.io/*/*", "kubelet/plugins/kubernetes.io/*/*/*",
		"kubelet/plugins/kubernetes.io/*/*/*/*"} {
		all, _ := filepath.Glob(n.path(pattern))
		for _, path := range all {
			if filepath.Base(path) != devicesName {
				out = append(out, strings.TrimPrefix(path, n.path("kubelet/plugins/kubernetes.io")+"/"))
			}
		}
	}
	for _, m := range n.mounts {
		out = append(out, "mount "+m.Device+" "+m.Path)
	}
	return out
}
