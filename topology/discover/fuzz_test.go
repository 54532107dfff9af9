package discover

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/numalet/numalet/topology"
)

// FuzzSysfs reads a machine with one file of any content and another one missing: it gives a valid
// machine or an error.
func FuzzSysfs(f *testing.F) {
	for _, path := range []string{
		"sys/devices/system/cpu/online", "sys/devices/system/node/online",
		"sys/devices/system/cpu/cpu1/topology/core_cpus_list",
		"sys/devices/system/cpu/cpu1/topology/physical_package_id",
		"sys/devices/system/node/node0/meminfo", "sys/devices/system/node/node0/distance",
		"sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages",
	} {
		f.Add(path, []byte("0-3\n"), "sys/devices/system/cpu/cpu2/topology/core_id")
		f.Add(path, []byte("-1"), path)
	}
	spec := fixtureSpec(f, "laptop")
	f.Fuzz(func(t *testing.T, path string, content []byte, missing string) {
		files := rendered(spec)
		files[path] = &fstest.MapFile{Data: content}
		delete(files, missing)
		read, err := tree{attributes{files}}.spec()
		if err != nil {
			return
		}
		m, err := topology.NewMachine(read)
		if err != nil {
			return
		}
		if m.Online().IsEmpty() || m.NodeSet().IsEmpty() {
			t.Errorf("a machine of CPUs %s on nodes %s", m.Online(), m.NodeSet())
		}
	})
}

// FuzzUnpack unpacks any tar file: nothing is written outside the directory.
func FuzzUnpack(f *testing.F) {
	for _, header := range []*tar.Header{
		{Typeflag: tar.TypeReg, Name: "sys/file", Size: 2, Mode: 0o600},
		{Typeflag: tar.TypeReg, Name: "../out", Size: 2, Mode: 0o600},
		{Typeflag: tar.TypeSymlink, Name: "sys/link", Linkname: "../../out"},
		{Typeflag: tar.TypeDir, Name: "sys/dir/", Mode: 0o700},
	} {
		var out bytes.Buffer
		w := tar.NewWriter(&out)
		if err := w.WriteHeader(header); err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write([]byte("ab")[:header.Size]); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		f.Add(out.Bytes())
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		outside := t.TempDir()
		inside := filepath.Join(outside, "inside")
		if err := os.Mkdir(inside, 0o700); err != nil {
			t.Fatal(err)
		}
		var zipped bytes.Buffer
		w := gzip.NewWriter(&zipped)
		_, _ = w.Write(archive) // a buffer takes everything
		_ = w.Close()
		_ = unpack(inside, &zipped) // an error is fine too
		entries, err := os.ReadDir(outside)
		if err != nil || len(entries) != 1 {
			t.Fatalf("beside the directory there is %v, %v", entries, err)
		}
	})
}
