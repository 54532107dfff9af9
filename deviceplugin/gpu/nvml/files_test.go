//go:build cgo

package nvml

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/numalet/numalet/deviceplugin/gpu"
)

const libraries = "usr/lib/x86_64-linux-gnu"

// rootOf lays out a driver's root: two libraries of its version, one of another version, a program.
func rootOf(t *testing.T, version string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{libraries + "/libcuda.so." + version,
		libraries + "/libnvidia-ml.so." + version, libraries + "/libnvidia-ml.so.1.2.3",
		"usr/bin/nvidia-smi"} {
		write(t, filepath.Join(root, name), "")
	}
	return root
}

// The driver's files are found under SeenAt and named as on the host.
func TestDriverFiles(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	root := rootOf(t, l.machine.Driver)
	session, err := Driver{Library: l, Root: l.root, Files: gpu.DriverFiles{Wanted: true,
		Root: "/run/nvidia/driver", SeenAt: root, Hook: "/opt/nvidia-cdi-hook"}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	got, err := session.Read()
	if err != nil || got.Files == nil {
		t.Fatalf("%v, %q", err, got.Warnings)
	}
	mounts := map[string]string{}
	for _, m := range got.Files.Mounts {
		mounts[m.ContainerPath] = m.HostPath
	}
	for _, name := range []string{"/libcuda.so.", "/libnvidia-ml.so."} {
		path := "/" + libraries + name + l.machine.Driver
		if mounts[path] != "/run/nvidia/driver"+path {
			t.Errorf("%s is %q of %v", path, mounts[path], mounts)
		}
	}
	if _, found := mounts["/"+libraries+"/libnvidia-ml.so.1.2.3"]; found || len(got.Files.Hooks) == 0 ||
		got.Files.DeviceNodes != nil {
		t.Errorf("mounts %v, %d hooks, device nodes %v", mounts, len(got.Files.Hooks),
			got.Files.DeviceNodes)
	}
	for _, h := range got.Files.Hooks {
		if h.Path != "/opt/nvidia-cdi-hook" {
			t.Errorf("the hook is %s", h.Path)
		}
	}
}

// A root without a driver gives a warning, does not stop GPUs from being offered, and is searched
// again.
func TestDriverFilesThatComeLate(t *testing.T) {
	l := newLibrary(t, "dgxh100")
	root := t.TempDir()
	session, err := Driver{Library: l, Root: l.root,
		Files: gpu.DriverFiles{Wanted: true, Root: root}}.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	got, err := session.Read()
	if err != nil || len(got.GPUs) != 8 || got.Files != nil || len(got.Warnings) != 1 ||
		!strings.Contains(got.Warnings[0], root) {
		t.Fatalf("%v: %d GPUs, files %v, %q", err, len(got.GPUs), got.Files, got.Warnings)
	}
	write(t, filepath.Join(root, libraries, "libcuda.so."+l.machine.Driver), "")
	got, err = session.Read()
	if err != nil || got.Files == nil || got.Warnings != nil {
		t.Fatalf("%v: files %v, %q", err, got.Files, got.Warnings)
	}
	if !slices.ContainsFunc(got.Files.Env, func(one string) bool {
		return strings.HasSuffix(one, "=/"+libraries)
	}) {
		t.Errorf("variables: %q", got.Files.Env)
	}
}
