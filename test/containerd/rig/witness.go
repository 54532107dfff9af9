package rig

import (
	"archive/tar"
	"os"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
)

// Witness is the program of the images of ImportWitness, which tells what it sees; it is sleep,
// too.
const Witness = "/bin/witness"

// ImportWitness makes images whose containers are Witness, and gives them to d. There are the users
// root and web.
func ImportWitness(t *testing.T, d *containerd.Daemon, images map[string]v1.Config) {
	t.Helper()
	program, err := os.ReadFile(build(t, "witness"))
	if err != nil {
		t.Fatal(err)
	}
	importImages(t, d, []containerd.Entry{
		{Header: tar.Header{Name: "tmp/", Mode: 0o1777}},
		{Header: tar.Header{Name: "etc/passwd", Mode: 0o644},
			Content: []byte("root:x:0:0::/:\nweb:x:1001:1002::/home:\n")},
		{Header: tar.Header{Name: "etc/group", Mode: 0o644},
			Content: []byte("root:x:0:\nweb:x:1002:\nmore:x:1003:web\n")},
		{Header: tar.Header{Name: Witness[1:], Mode: 0o755}, Content: program},
		{Header: tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/sleep", Linkname: "witness"}},
	}, images)
}
