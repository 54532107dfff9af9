package volume

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/scratch"
)

// hostFiles makes a directory with one of each: dir, file, link to dir, socket.
func hostFiles(t *testing.T) func(string) string {
	t.Helper()
	dir := scratch.Dir(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(at("dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, at("file"), "")
	if err := os.Symlink(at("dir"), at("link")); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return at
}

func TestHostPath(t *testing.T) {
	at := hostFiles(t)
	check := func(path, isNot, kind string) string {
		return fmt.Sprintf("hostPath type check failed: %s is not %s (type %s)", path, isNot, kind)
	}
	tests := []struct {
		name string
		path string
		kind v1.HostPathType
		want string // "" is accepted
	}{
		{"no type", at("none"), "", ""},
		{"directory", at("dir"), "Directory", ""},
		{"directory by link", at("link"), "Directory", ""},
		{"file as directory",
			at("file"), "Directory", check(at("file"), "a directory", "Directory")},
		{"no directory", at("none"), "Directory", "hostPath type check failed: " + at("none") +
			" is not a directory: nothing is there (type Directory)"},
		{"new directory", at("new/deep"), "DirectoryOrCreate", ""},
		{"directory is there", at("dir"), "DirectoryOrCreate", ""},
		{"file is there", at("file"), "DirectoryOrCreate",
			check(at("file"), "a directory", "DirectoryOrCreate")},
		{"file", at("file"), "File", ""},
		{"directory as file", at("dir"), "File", check(at("dir"), "a file", "File")},
		{"new file", at("newfile"), "FileOrCreate", ""},
		{"new file without parent", at("no/newfile"), "FileOrCreate",
			"hostPath type FileOrCreate: create: open " + at("no/newfile") +
				": no such file or directory"},
		{"socket", at("socket"), "Socket", ""},
		{"file as socket", at("file"), "Socket", check(at("file"), "a socket file", "Socket")},
		{"character device", "/dev/null", "CharDevice", ""},
		{"character device as block device", "/dev/null", "BlockDevice",
			check("/dev/null", "a block device", "BlockDevice")},
		{"file as character device", at("file"), "CharDevice",
			check(at("file"), "a character device", "CharDevice")},
		{"unknown type", at("file"), "Pipe", "hostPath " + at("file") + `: unknown type "Pipe"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			v, _ := newVolumes(t, Config{})
			err := v.SetUp(t.Context(), podWith(host("v", tt.path, tt.kind)))
			got, want := "", tt.want
			if err != nil {
				got = err.Error()
			}
			if want != "" {
				want = `MountVolume.SetUp failed for volume "v" : ` + want
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	if info, err := os.Stat(at("new/deep")); err != nil || info.Mode() != fs.ModeDir|0o755 {
		t.Errorf("created directory: %v, %v", info, err)
	}
	if info, err := os.Stat(at("newfile")); err != nil || info.Mode() != 0o644 {
		t.Errorf("created file: %v, %v", info, err)
	}
	if _, err := os.Stat(at("none")); err == nil {
		t.Error("a path without type was created")
	}
}
