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
	image, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH,
		Config: v1.Config{Cmd: []string{"sh"}, Env: []string{"PATH=/bin"}, WorkingDir: "/"},
	})
	if err != nil {
		t.Fatal(err)
	}
	image, err = mutate.AppendLayers(image,
		static.NewLayer(shellLayer(t), types.DockerUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(ShellImage)
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "shell.tar")
	if err := tarball.WriteToFile(archive, tag, image); err != nil {
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
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(h tar.Header, text []byte) {
		h.Size = int64(len(text))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	add(tar.Header{Name: "tmp/", Mode: 0o1777}, nil)
	add(tar.Header{Name: "bin/busybox", Mode: 0o755}, program)
	for _, c := range strings.Fields(string(commands)) {
		if c != "busybox" {
			add(tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + c, Linkname: "busybox"}, nil)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
