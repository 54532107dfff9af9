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
)

// Program is where the executable is in an image.
const Program = "/numalet"

// The images that come with us.
const (
	PauseImage = "registry.numalet.test/pause:1"
	WorkImage  = "registry.numalet.test/work:1"
)

// WriteArchive writes PauseImage and WorkImage, made from a numalet executable, to a file that
// Import takes.
func WriteArchive(file, executable string) error {
	layer, err := layerOf(executable)
	if err != nil {
		return err
	}
	images := map[name.Reference]v1.Image{}
	for ref, command := range map[string]string{PauseImage: "pause", WorkImage: "work"} {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		if images[tag], err = image(layer, command); err != nil {
			return err
		}
	}
	if err := tarball.MultiRefWriteToFile(file, images); err != nil {
		return fmt.Errorf("write images to %s: %w", file, err)
	}
	return nil
}

// Image is an image whose containers run "numalet container COMMAND" with their own arguments.
func Image(executable, command string) (v1.Image, error) {
	layer, err := layerOf(executable)
	if err != nil {
		return nil, err
	}
	return image(layer, command)
}

func image(layer v1.Layer, command string) (v1.Image, error) {
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH,
		Config: v1.Config{
			Entrypoint: []string{Program, "container", command},
			Env:        []string{"PATH=/"},
			WorkingDir: "/",
		},
	})
	if err != nil {
		return nil, err
	}
	return mutate.AppendLayers(img, layer)
}

// layerOf has the executable with its libraries, and the few files programs look for.
func layerOf(executable string) (v1.Layer, error) {
	needed, err := libraries(executable)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	add := func(name string, mode int64, text []byte) error {
		header := &tar.Header{Name: name, Mode: mode, Size: int64(len(text))}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err := w.Write(text)
		return err
	}
	for _, f := range []struct {
		name string
		mode int64
		text string
	}{
		{"etc/", 0o755, ""},
		{"etc/passwd", 0o644, "root:x:0:0::/:\nnobody:x:65534:65534::/:\n"},
		{"etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n"},
		{"tmp/", 0o1777, ""},
	} {
		if err := add(f.name, f.mode, []byte(f.text)); err != nil {
			return nil, err
		}
	}
	files := map[string]string{Program: executable}
	for _, file := range needed {
		files[file] = file
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text, err := os.ReadFile(files[name])
		if err == nil {
			err = add(name[1:], 0o755, text)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return static.NewLayer(buf.Bytes(), types.DockerUncompressedLayer), nil
}
