package numa_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/containerd/rig"

	"github.com/numalet/numalet/test/harness"
)

// needs are programs of the host, with the Debian packages that have them.
func needs() map[string]string {
	return map[string]string{
		"qemu-system-x86_64": "qemu-system-x86", "mkfs.ext4": "e2fsprogs", "mkfs.xfs": "xfsprogs",
		"busybox": "busybox-static", "gcc": "gcc", "pkg-config": "pkg-config",
		"/usr/lib/cni/ptp": "containernetworking-plugins",
	}
}

// makeDisk makes a disk image with everything the guest needs: the programs, the kernel's modules,
// and the test binaries in /numa. more are further files, by where they are to be.
func makeDisk(t *testing.T, kernel string, more map[string]string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range strings.Fields("proc sys dev run tmp root etc sbin var/lib/cni numa") {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	bin := rig.Binaries(t)
	for to, from := range map[string]string{
		"bin/busybox": program(t, "busybox"), "sbin/init": "guest/init.sh",
		"bin/containerd":              filepath.Join(bin, "containerd"),
		"bin/ctr":                     filepath.Join(bin, "ctr"),
		"bin/containerd-shim-runc-v2": filepath.Join(bin, "containerd-shim-runc-v2"),
	} {
		install(t, from, filepath.Join(root, to))
	}
	for to, from := range more {
		install(t, from, filepath.Join(root, to))
	}
	runc := buildRunc(t)
	install(t, runc, filepath.Join(root, "sbin/runc"))
	for _, linked := range []string{
		runc, "/usr/lib/cni/ptp", "/usr/lib/cni/host-local", "/usr/lib/cni/loopback",
	} {
		for _, file := range libraries(t, linked) {
			install(t, file, filepath.Join(root, file))
		}
		if linked != runc {
			install(t, linked, filepath.Join(root, linked))
		}
	}
	if err := errors.Join(
		os.Symlink("/bin/busybox", filepath.Join(root, "sbin/modprobe")),
		// the kernel calls it there
		os.CopyFS(filepath.Join(root, "lib/modules"),
			os.DirFS(filepath.Join(kernel, "lib/modules"))),
		os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\n"),
			0o644),
		os.WriteFile(filepath.Join(root, "etc/group"), []byte("root:x:0:\n"), 0o644),
		os.WriteFile(filepath.Join(root, "etc/resolv.conf"), nil, 0o644),
		os.WriteFile(filepath.Join(root, "etc/hosts"), []byte("127.0.0.1 localhost numa\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	if more["/lib/systemd/systemd"] != "" {
		if err := addSystemd(root); err != nil {
			t.Fatal(err)
		}
	}
	buildInto(t, filepath.Join(root, "numa"))
	counting(t, filepath.Join(root, "numa/prjquota"))
	return format(t, root)
}

// counting makes images of filesystems that count projects, sparse ones: path.ext4 and path.xfs.
func counting(t *testing.T, path string) {
	t.Helper()
	for _, args := range [][]string{
		{program(t, "mkfs.ext4"), "-q", "-O", "quota,project", "-E", "quotatype=prjquota", path + ".ext4", "32M"},
		{program(t, "mkfs.xfs"), "-q", "-d", "file,size=304m,name=" + path + ".xfs"}, // none is smaller
		{"fallocate", "--dig-holes", path + ".xfs"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("make a filesystem with project quotas: %s: %v\n%s", args[0], err, out)
		}
	}
}

// buildRunc builds a runc that puts network interfaces into containers, as Debian's does not yet.
func buildRunc(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("../tools/runc.sh")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build runc: %v", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "runc")
}

// buildInto puts our programs there, the test binaries, and an archive of images.
func buildInto(t *testing.T, dir string) {
	t.Helper()
	archive := filepath.Join(dir, "images.tar")
	if err := containerd.WriteArchive(archive, rig.Program(t)); err != nil {
		t.Fatal(err)
	}
	harness.Programs(t, dir)
	for _, args := range [][]string{
		{"test", "-c", "-o", dir + "/guest.test", "github.com/numalet/numalet/test/numa/guest"},
		{"test", "-c", "-o", dir + "/cgroups.test", "github.com/numalet/numalet/cgroups"},
		{"test", "-c", "-o", dir + "/wake.test", "github.com/numalet/numalet/agent/node/eviction/wake"},
		{"test", "-c", "-o", dir + "/quota.test", "github.com/numalet/numalet/agent/storage/localstorage/quota"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// format makes a disk image of a folder. It takes little more room than its content.
func format(t *testing.T, root string) string {
	t.Helper()
	disk := filepath.Join(t.TempDir(), "disk.img")
	f, err := os.Create(disk)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(2<<30), f.Close()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program(t, "mkfs.ext4"), "-q", "-F", "-E", "root_owner=0:0", "-d", root,
		disk)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a disk of %s: %v\n%s", root, err, out)
	}
	return disk
}

// library is a file in the output of ldd.
var library = regexp.MustCompile(`(?m)^\s*(?:\S+ => )?(/\S+) \(0x`)

// libraries returns the shared libraries and the loader of an executable.
func libraries(t *testing.T, executable string) (files []string) {
	t.Helper()
	out, err := exec.Command("ldd", executable).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not a dynamic executable") {
		t.Fatalf("ldd %s: %v\n%s", executable, err, out)
	}
	for _, match := range library.FindAllSubmatch(out, -1) {
		files = append(files, string(match[1]))
	}
	return files
}

func install(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, content, 0o755))
	}
	if err != nil {
		t.Fatalf("install %s: %v", from, err)
	}
}

// program returns the path of an executable of the host, also where only root looks for it.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := lookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err != nil {
			path, err = exec.LookPath(filepath.Join(dir, name))
		}
	}
	if err != nil {
		return "", fmt.Errorf("find %s: %w", name, err)
	}
	return path, nil
}
