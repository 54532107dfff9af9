package numa_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDisks boots a machine with a target of iSCSI and a server of NFS, the kernel's, and with SELinux:
// volumes are made and removed there with the host's tools.
func TestDisks(t *testing.T) {
	kernel := require(t)
	began := time.Now()
	m := usualMachine(kernel, makeDisk(t, kernel, storage(t)))
	m.sockets = ""
	m.settings = []string{"NUMALET_HUGE=", "security=selinux", "selinux=1", "enforcing=0"}
	if value := os.Getenv("NUMALET_KILLS"); value != "" {
		m.settings = append(m.settings, "NUMALET_KILLS="+value)
	}
	results := run(t, m, "guest:^TestDisks")
	results.print(os.Stdout, fmt.Sprintf("disks, %.0f s", time.Since(began).Seconds()))
	results.subtests(t)
}

// storage returns the programs of iSCSI, NFS and file systems with their libraries, by where they are to
// be.
func storage(t *testing.T) map[string]string {
	t.Helper()
	from := tool(t, "storage.sh")
	all := map[string]string{}
	for _, file := range []string{"/etc/iscsi/iscsid.conf", "/etc/netconfig", "/etc/protocols", "/etc/services"} {
		all[file] = from + file
	}
	libraries := func(path string) {
		cmd := exec.Command("ldd", path)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+from+"/usr/lib/x86_64-linux-gnu:"+
			from+"/lib/x86_64-linux-gnu")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("ldd %s: %v\n%s", path, err, out)
		}
		for _, match := range library.FindAllSubmatch(out, -1) {
			all[strings.TrimPrefix(string(match[1]), from)] = string(match[1])
		}
	}
	for _, name := range []string{"iscsiadm", "iscsid", "mount.nfs"} {
		all["/sbin/"+name] = filepath.Join(from, "sbin", name)
		libraries(all["/sbin/"+name])
	}
	for _, name := range []string{"exportfs", "rpc.nfsd", "rpc.mountd"} {
		all["/usr/sbin/"+name] = filepath.Join(from, "usr/sbin", name)
		libraries(all["/usr/sbin/"+name])
	}
	for _, name := range []string{"mount", "umount", "blkid", "fsck", "fsck.ext4", "mkfs.ext4"} {
		path, err := lookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		all["/usr/sbin/"+name] = path
		libraries(path)
	}
	all["/numa/selinux.policy"] = policy(t, filepath.Join(from, "usr/bin/checkpolicy"))
	return all
}

// policy compiles the guest's SELinux policy.
func policy(t *testing.T, compiler string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "policy")
	if said, err := exec.Command(compiler, "-M", "-U", "allow", "-o", out, "guest/selinux.conf").
		CombinedOutput(); err != nil {
		t.Fatalf("checkpolicy: %v\n%s", err, said)
	}
	return out
}
