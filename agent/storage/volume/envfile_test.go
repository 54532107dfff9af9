package volume

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cri"
)

// EnvFile reads only inside the volume, and does not block on what a container puts there.
func TestEnvFile(t *testing.T) {
	v, _ := newVolumes(t, Config{})
	pod := podWith(empty("files", ""))
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "unused"})
	dir := filepath.Join(setUp(t, v, pod), "volumes/kubernetes.io~empty-dir/files")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("good", "A='b'\n")
	write("long", strings.Repeat("#", cri.MaxEnvFile+1))
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("good", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"good": "", "link": "",
		"none": "no such file", "out": "invalid cross-device link", "../files/good": "cross-device",
		"pipe": "not a regular file", ".": "not a regular file", "long": "more than 65536 bytes",
	} {
		got, err := v.Containers.EnvFile(pod, "files", path)
		switch {
		case want == "" && (err != nil || string(got) != "A='b'\n"):
			t.Errorf("%s: %q, %v", path, got, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %q, %v; want %s", path, got, err, want)
		}
	}
	for _, name := range []string{"unused", "unknown"} {
		if _, err := v.Containers.EnvFile(pod, name, "good"); err == nil ||
			!strings.Contains(err.Error(), "cannot find the volume") {
			t.Errorf("volume %s: %v", name, err)
		}
	}
}
