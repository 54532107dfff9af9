package containerd

import (
	"archive/tar"
	"bytes"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
)

// Program is the path of the executable in an image.
const Program = "/numalet"

// The images that WriteArchive builds.
const (
	PauseImage = "registry.numalet.test/pause:1"
	WorkImage  = "registry.numalet.test/work:1"
)

// WriteArchive builds PauseImage and WorkImage from a numalet executable, and writes them to a file
// for Import.
func WriteArchive(file, executable string) error {
	layer, err := layerOf(executable)
	if err != nil {
		return err
	}
	return WriteImages(file, layer, map[string]v1.Config{
		PauseImage: running("pause"), WorkImage: running("work"),
	})
}

// WriteImages writes images that share one layer, by name, to a file for Import.
func WriteImages(file string, layer v1.Layer, of map[string]v1.Config) error {
	images := map[name.Reference]v1.Image{}
	for ref, config := range of {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		if images[tag], err = image(layer, config); err != nil {
			return err
		}
	}
	if err := tarball.MultiRefWriteToFile(file, images); err != nil {
		return fmt.Errorf("write images to %s: %w", file, err)
	}
	return nil
}

// Image returns an image whose containers run "numalet container COMMAND" with their own arguments.
func Image(executable, command string) (v1.Image, error) {
	layer, err := layerOf(executable)
	if err != nil {
		return nil, err
	}
	return image(layer, running(command))
}

func running(command string) v1.Config {
	return v1.Config{
		Entrypoint: []string{Program, "container", command},
		Env:        []string{"PATH=/bin:/"},
		WorkingDir: "/",
	}
}

func image(layer v1.Layer, config v1.Config) (v1.Image, error) {
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, Config: config,
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer)
}

// layerOf returns a layer with the executable, its libraries, and the few files that programs
// expect.
func layerOf(executable string) (v1.Layer, error) {
	needed, err := libraries(executable)
	if err != nil {
		return nil, err
	}
	entries := []Entry{
		{tar.Header{Name: "etc/", Mode: 0o755}, nil},
		{tar.Header{Name: "etc/passwd", Mode: 0o644},
			[]byte("root:x:0:0::/:\nnobody:x:65534:65534::/:\n")},
		{tar.Header{Name: "etc/group", Mode: 0o644}, []byte("root:x:0:\nnogroup:x:65534:\n")},
		{tar.Header{Name: "tmp/", Mode: 0o1777}, nil},
		{tar.Header{Name: "bin/", Mode: 0o755}, nil},
	}
	for _, applet := range workload.Applets() {
		entries = append(entries, Entry{tar.Header{Name: "bin/" + applet, Mode: 0o777,
			Typeflag: tar.TypeSymlink, Linkname: Program}, nil})
	}
	files := map[string]string{Program: executable}
	for _, file := range needed {
		files[file] = file
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(files[name])
		if err != nil {
			return nil, err
		}
		entries = append(entries, Entry{tar.Header{Name: name[1:], Mode: 0o755}, text})
	}
	return Layer(entries)
}

// Entry is a file, directory or link in an image.
type Entry struct {
	tar.Header
	Content []byte
}

// Layer returns a layer that consists of these entries.
func Layer(entries []Entry) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range entries {
		e.Size = int64(len(e.Content))
		if err := w.WriteHeader(&e.Header); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.Content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(buf.Bytes(), types.DockerUncompressedLayer), nil
}
