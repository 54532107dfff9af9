package guest_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/numalet/numalet/test/harness"
)

// startTarget has the kernel be a target with open disks, and one that asks who comes, and starts iscsid.
func startTarget(t *testing.T) {
	must(t, "modprobe", "-a", "sd_mod", "iscsi_tcp", "target_core_mod", "target_core_file", "iscsi_target_mod",
		"crc32c_generic", "loop")
	const config = "/sys/kernel/config"
	if _, err := os.Stat(config + "/target"); err != nil {
		must(t, "mount", "-t", "configfs", "configfs", config)
	}
	mkdir := func(path string) string {
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	set := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	mkdir("/run/disks")
	n := 0
	for iqn, portals := range map[string][]string{openIQN: {"127.0.0.1:3260", "127.0.0.2:3260"}, chapIQN: {"127.0.0.1:3260"}} {
		mkdir(config + "/target/iscsi")
		mkdir(config + "/target/iscsi/" + iqn)
		group := mkdir(config + "/target/iscsi/" + iqn + "/tpgt_1")
		for i := range luns {
			name := fmt.Sprintf("disk%d", n)
			n++
			mkdir(config + "/target/core/fileio_0")
			disk := mkdir(config + "/target/core/fileio_0/" + name)
			set(disk+"/control", fmt.Sprintf("fd_dev_name=/run/disks/%s.img,fd_dev_size=%d", name, 32<<20))
			set(disk+"/enable", "1")
			if err := os.Symlink(disk, mkdir(fmt.Sprintf("%s/lun/lun_%d", group, i))+"/disk"); err != nil {
				t.Fatal(err)
			}
		}
		for name, value := range map[string]string{"generate_node_acls": "1", "demo_mode_write_protect": "0",
			"cache_dynamic_acls": "1", "authentication": "0"} {
			set(group+"/attrib/"+name, value)
		}
		if iqn == chapIQN {
			set(group+"/attrib/authentication", "1")
			set(group+"/auth/userid", "user")
			set(group+"/auth/password", "password-of-12")
		}
		for _, portal := range portals {
			mkdir(group + "/np/" + portal)
		}
		set(group+"/enable", "1")
	}
	write(t, "/etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.2026-01.test:node\n")
	mkdir("/run/lock/iscsi")
	serve(t, "iscsid", "-f")
	harness.Eventually(t, "iscsid to answer", func() error {
		if exec.Command("iscsiadm", "-m", "iface").Run() != nil {
			return errors.New("it does not")
		}
		return nil
	})
}

// startNFS has the kernel be a server of NFS 4.
func startNFS(t *testing.T) {
	must(t, "modprobe", "-a", "nfsd", "nfs", "nfsv4")
	write(t, "/run/disks/export/there", "")
	if err := os.MkdirAll("/var/lib/nfs/v4recovery", 0o755); err != nil {
		t.Fatal(err)
	}
	must(t, "mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
	write(t, "/etc/exports", "/run/disks/export *(rw,fsid=0,no_root_squash,insecure,no_subtree_check)\n")
	write(t, "/var/lib/nfs/etab", "")
	write(t, "/var/lib/nfs/rmtab", "")
	serve(t, "rpc.mountd", "-F", "-N", "3")
	must(t, "exportfs", "-ar")
	must(t, "rpc.nfsd", "-N", "3", "-G", "10", "-L", "10", "4")
}

// serve starts a server that ends with the test.
func serve(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}
