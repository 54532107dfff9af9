package guest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/agent/storage/volume/selinux"
	"github.com/numalet/numalet/test/harness"
)

// loadPolicy has the kernel label files, and says which labels containers have.
func loadPolicy(t *testing.T) {
	t.Helper()
	must(t, "mount", "-t", "selinuxfs", "selinuxfs", "/sys/fs/selinux")
	policy, err := os.ReadFile("/numa/selinux.policy")
	if err == nil {
		err = os.WriteFile("/sys/fs/selinux/load", policy, 0)
	}
	if err != nil {
		t.Fatalf("load the policy: %v", err)
	}
	write(t, "/etc/selinux/config", "SELINUX=permissive\nSELINUXTYPE=test\n")
	write(t, "/etc/selinux/test/contexts/lxc_contexts", `process = "system_u:system_r:container_t:s0"
file = "system_u:object_r:container_file_t:s0"
`)
}

// labeledPod returns a pod with two claims, whose processes have a level.
func labeledPod(uid, level string) *v1.Pod {
	pod := podOf(uid, "labeled", "files")
	pod.Spec.SecurityContext = &v1.PodSecurityContext{SELinuxOptions: &v1.SELinuxOptions{Level: level}}
	return pod
}

// setUpLabeled is setUp for a target that may be slow: the kernel has just loaded its policy.
func (a diskAgent) setUpLabeled(pod *v1.Pod) {
	a.t.Helper()
	harness.Eventually(a.t, "volumes of pod "+pod.Name, func() error {
		return a.SetUp(context.Background(), pod)
	})
}

// testSELinux: the kernel gives the files of a volume that one pod has alone the label of that pod, whoever
// had it before. Other volumes are left to the runtime.
func testSELinux(t *testing.T) {
	loadPolicy(t)
	gates := func(gate string) bool { return gate != "SELinuxMount" }
	labels, err := selinux.New(selinux.ThisHost(), gates, nil)
	if err != nil || !labels.Enabled() {
		t.Fatalf("SELinux is not on: %v", err)
	}
	a := newLabelingAgent(t, labels)
	for i, level := range []string{"s0:c1,c2", "s0:c3"} {
		uid := fmt.Sprintf("level%d", i)
		a.setUpLabeled(labeledPod(uid, level))
		file := path(uid, "iscsi", "labeled") + "/x"
		if i == 0 {
			write(t, file, "of the first")
			write(t, path(uid, "iscsi", "files")+"/x", "of a")
		}
		a.stop()
		a = newLabelingAgent(t, labels)
		pod := labeledPod(uid, level)
		a.setUpLabeled(pod) // it is there already
		checkLabels(t, uid, "system_u:object_r:container_file_t:"+level)
		if text, err := os.ReadFile(file); err != nil || string(text) != "of the first" {
			t.Errorf("%s reads %q, %v", uid, text, err)
		}
		mounts, err := a.Containers.Mounts(t.Context(), pod, &pod.Spec.Containers[0], volume.Start{})
		if err != nil || len(mounts) != 2 || mounts[0].SelinuxRelabel || !mounts[1].SelinuxRelabel {
			t.Errorf("the runtime has %v, %v", mounts, err)
		}
		a.end(uid)
	}
	// A label that the policy does not have. The disk keeps what it has.
	err = a.SetUp(t.Context(), labeledPod("wrong", "s0:c1023"))
	if err == nil || !strings.Contains(err.Error(), "mount the file system on LUN 1") {
		t.Errorf("with a wrong label: %v", err)
	}
	a.end("wrong")
	a.setUpLabeled(labeledPod("last", "s0:c1"))
	text, err := os.ReadFile(path("last", "iscsi", "labeled") + "/x")
	if err != nil || string(text) != "of the first" {
		t.Errorf("after a wrong label, the disk has %q, %v", text, err)
	}
	a.end("last")
	a.stop()
	row(t, "a disk with SELinux labels: each pod has its own")
}

// checkLabels compares what the kernel says of the mounts and files of a pod.
func checkLabels(t *testing.T, uid, want string) {
	t.Helper()
	mounts, err := mountsBelow(disksRoot)
	if err != nil {
		t.Fatal(err)
	}
	with := 0
	for _, m := range mounts {
		if strings.Contains(m, "context=") {
			with++
			if !strings.Contains(m, `context="`+want+`"`) && !strings.Contains(m, "context="+want) {
				t.Errorf("mounted %s, want the label %s", m, want)
			}
		}
	}
	if len(mounts) != 4 || with != 2 { // two disks, for the node and for the pod
		t.Errorf("%d mounts with labels in %q", with, mounts)
	}
	for _, file := range []string{"", "/x"} {
		if got := labelOf(t, path(uid, "iscsi", "labeled")+file); got != want {
			t.Errorf("labeled%s has the label %s, want %s", file, got, want)
		}
		if got := labelOf(t, path(uid, "iscsi", "files")+file); got == want {
			t.Errorf("files%s has the label %s", file, got)
		}
	}
}

func labelOf(t *testing.T, path string) string {
	t.Helper()
	text := make([]byte, 256)
	n, err := unix.Getxattr(path, "security.selinux", text)
	if err != nil {
		t.Errorf("read the label of %s: %v", path, err)
		return ""
	}
	return string(bytes.TrimRight(text[:n], "\x00"))
}
