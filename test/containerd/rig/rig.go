// Package rig gives tests a real containerd with images, and a registry to pull from.
package rig

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gofrs/flock"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/scratch"
)

// Containerd starts a containerd for the test, with containerd.PauseImage and WorkImage, and stops
// it when the test ends. Where it cannot run the test is skipped; in CI it fails.
func Containerd(t *testing.T) *containerd.Daemon {
	t.Helper()
	Require(t)
	Alone(t)
	return start(t, func(*testing.T, string) {})
}

// start starts a containerd in a directory at which mount may mount something.
func start(t *testing.T, mount func(t *testing.T, dir string)) *containerd.Daemon {
	t.Helper()
	config := configure(t)
	mount(t, config.Dir)
	d, err := containerd.Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("containerd's log:\n%s", trouble(d.LogFile()))
		}
		if err := d.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	archive := filepath.Join(t.TempDir(), "images.tar")
	if err := containerd.WriteArchive(archive, Program(t)); err != nil {
		t.Fatal(err)
	}
	if err := d.Import(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	return d
}

// subnets has the subnets of this process's containerds.
var subnets sync.Map

// configure chooses a directory, which Stop leaves empty, and with it a subnet that no other has.
func configure(t *testing.T) containerd.Config {
	t.Helper()
	dir := scratch.Dir(t)
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	c := containerd.Config{Binaries: Binaries(t), Dir: dir, Pause: containerd.PauseImage,
		CNI: os.Getenv(networkPlugins), Systemd: systemdRuns()}
	subnet := c.Subnet()
	if _, taken := subnets.LoadOrStore(subnet, true); taken {
		return configure(t)
	}
	t.Cleanup(func() { subnets.Delete(subnet) })
	return c
}

// Require skips the test where a containerd cannot run; in CI it fails.
func Require(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		scratch.LeaveOut(t, "a real containerd needs root")
	}
	config := containerd.Config{Binaries: Binaries(t), Dir: "/tmp", Pause: containerd.PauseImage}
	if err := config.Check(); err != nil {
		scratch.LeaveOut(t, err.Error())
	}
}

// Alone waits until no other test of the same run, which has one TMPDIR, has a containerd, and
// keeps them waiting until the test ends: several at once only take CPUs from each other, and one of
// them mounts a hierarchy of cgroups that the others' runtimes look for in vain.
// Containerd does it; tests that start one by other means must.
func Alone(t *testing.T) {
	t.Helper()
	lock := flock.New(filepath.Join(os.TempDir(), "numalet-containerd.lock"))
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// trouble returns the lines of containerd's log above the level of information.
func trouble(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
		return strings.Contains(line, "level=info")
	})
	return strings.Join(lines, "\n")
}

// Binaries is the folder with containerd, its shim and ctr: $NUMALET_TOOLS, or what
// test/tools/build.sh builds, which takes a minute or two the first time.
func Binaries(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("NUMALET_TOOLS"); dir != "" {
		return dir
	}
	return scratch.Build(t, "containerd", "build.sh")
}

// NewRunc has the containerds of the test use what test/tools/runc.sh builds in place of the host's
// runc, which may be too old for what the test is about.
func NewRunc(t *testing.T) {
	t.Helper()
	t.Setenv("PATH", scratch.Build(t, "runc", "runc.sh")+string(filepath.ListSeparator)+os.Getenv("PATH"))
}

// networkPlugins is a variable with the folder of network plugins, where that is not the host's.
const networkPlugins = "NUMALET_TEST_NETWORK_PLUGINS"

// NetworkPlugins has the containerds of the test use the network plugins in a folder.
func NetworkPlugins(t *testing.T, dir string) {
	t.Helper()
	t.Setenv(networkPlugins, dir)
}

// Multus builds the network plugin Multus.
func Multus(t *testing.T) string {
	t.Helper()
	return filepath.Join(scratch.Build(t, "multus", "multus.sh"), "multus")
}

// Program builds a small static program that does what numalet does in an image.
func Program(t *testing.T) string {
	t.Helper()
	return build(t, "inside")
}

// build builds the static program that is in a folder here.
func build(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", file, "./test/containerd/rig/"+name)
	cmd.Dir = scratch.File(t, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the program for images: %v\n%s", err, out)
	}
	return file
}

// Registry is a registry in the test's process that d pulls from under a host name. The function
// it returns uploads an image to it.
func Registry(t *testing.T, d *containerd.Daemon, host string) func(ref string, img v1.Image) {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	if err := d.UseRegistry(host, server.URL); err != nil {
		t.Fatal(err)
	}
	return func(ref string, img v1.Image) {
		t.Helper()
		at := strings.Replace(ref, host, server.Listener.Addr().String(), 1)
		tag, err := name.NewTag(at, name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		if err := remote.Write(tag, img, remote.WithContext(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}
