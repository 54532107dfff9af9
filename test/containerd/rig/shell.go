package rig

import (
	"archive/tar"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/numalet/numalet/cri/containerd"
)

// ShellImage has busybox and nothing else: a shell, tar and what else people use.
const ShellImage = "registry.numalet.test/shell:1"

// ImportShell makes ShellImage, with the host's busybox, and gives it to d.
func ImportShell(t *testing.T, d *containerd.Daemon) {
	t.Helper()
	importImages(t, d, shellLayer(t), map[string]v1.Config{
		ShellImage: {Cmd: []string{"sh"}, Env: []string{"PATH=/bin"}, WorkingDir: "/"}})
}

// importImages makes images of one layer, a tar, and gives them to d.
func importImages(t *testing.T, d *containerd.Daemon, tar []byte, of map[string]v1.Config) {
	t.Helper()
	layer := static.NewLayer(tar, types.DockerUncompressedLayer)
	images := map[name.Reference]v1.Image{}
	for ref, config := range of {
		tag, err := name.NewTag(ref)
		if err != nil {
			t.Fatal(err)
		}
		images[tag], err = mutate.ConfigFile(empty.Image, &v1.ConfigFile{
			OS: "linux", Architecture: runtime.GOARCH, Config: config})
		if err == nil {
			images[tag], err = mutate.AppendLayers(images[tag], layer)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	archive := filepath.Join(t.TempDir(), "images.tar")
	if err := tarball.MultiRefWriteToFile(archive, images); err != nil {
		t.Fatal(err)
	}
	if err := d.Import(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
}

// shellLayer is a tar of busybox, with a link for each of its commands.
func shellLayer(t *testing.T) []byte {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		leaveOut(t, "needs Debian's busybox-static: test/tools/install.sh")
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	commands, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	entries := []entry{{tar.Header{Name: "tmp/", Mode: 0o1777}, nil},
		{tar.Header{Name: "bin/busybox", Mode: 0o755}, program}}
	for _, c := range strings.Fields(string(commands)) {
		if c != "busybox" {
			entries = append(entries, entry{tar.Header{Typeflag: tar.TypeSymlink,
				Name: "bin/" + c, Linkname: "busybox"}, nil})
		}
	}
	return layer(t, entries)
}

// entry is a file, folder or link of an image.
type entry struct {
	tar.Header
	content []byte
}

// layer is a tar of the entries.
func layer(t *testing.T, entries []entry) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
