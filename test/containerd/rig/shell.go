package rig

import (
	"archive/tar"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/scratch"
)

// ShellImage has busybox and nothing else: a shell, tar and what else people use.
const ShellImage = "registry.numalet.test/shell:1"

// ImportShell makes ShellImage, with the host's busybox, and gives it to d.
func ImportShell(t *testing.T, d *containerd.Daemon) {
	t.Helper()
	importImages(t, d, shell(t), map[string]v1.Config{
		ShellImage: {Cmd: []string{"sh"}, Env: []string{"PATH=/bin"}, WorkingDir: "/"}})
}

// importImages makes images of one layer and gives them to d.
func importImages(t *testing.T, d *containerd.Daemon, entries []containerd.Entry,
	of map[string]v1.Config) {
	t.Helper()
	layer, err := containerd.Layer(entries)
	archive := filepath.Join(t.TempDir(), "images.tar")
	if err == nil {
		err = containerd.WriteImages(archive, layer, of)
	}
	if err == nil {
		err = d.Import(t.Context(), archive)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// shell has busybox, with a link for each of its commands.
func shell(t *testing.T) []containerd.Entry {
	t.Helper()
	path, err := exec.LookPath("busybox")
	if err != nil {
		scratch.LeaveOut(t, "needs Debian's busybox-static: test/tools/install.sh")
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	commands, err := exec.Command(path, "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	entries := []containerd.Entry{
		{Header: tar.Header{Name: "tmp/", Mode: 0o1777}},
		{Header: tar.Header{Name: "bin/busybox", Mode: 0o755}, Content: program},
	}
	for _, c := range strings.Fields(string(commands)) {
		if c != "busybox" {
			entries = append(entries, containerd.Entry{Header: tar.Header{
				Typeflag: tar.TypeSymlink, Name: "bin/" + c, Linkname: "busybox"}})
		}
	}
	return entries
}
