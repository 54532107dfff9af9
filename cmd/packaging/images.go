package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Domain is that of the images' names. The images are in no registry: nodes import the file, or it
// is pushed to a registry of one's own.
const domain = "numalet.io"

// plugins are the images: what runs in them, as root.
func plugins() map[string]v1.Config {
	return map[string]v1.Config{
		"gpu": {
			Entrypoint: []string{"/usr/bin/numalet-gpu"},
			// for NVIDIA's runtime, if the node has it: all GPUs, and the library that tells of them
			Env: []string{"NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=utility"},
		},
		"eni": {Entrypoint: []string{"/usr/bin/numalet-lab", "plugin", "eni"}},
	}
}

// image makes an image of a program, as an OCI layout in a tar file. A program that is linked with the
// C library brings this machine's along, with what NVIDIA's library needs beside it.
func (r release) image(kind, program string) error {
	config, known := plugins()[kind]
	if !known {
		return fmt.Errorf("there is no image %s", kind)
	}
	at := map[string]string{"usr/bin/" + filepath.Base(program): program}
	libraries, err := linked(program)
	if err != nil {
		return err
	}
	for _, library := range libraries {
		at[strings.TrimPrefix(library, "/")] = library
	}
	layer, err := r.layer(at)
	if err != nil {
		return err
	}
	img, err := r.configured(layer, config)
	if err != nil {
		return err
	}
	name := "numalet-" + kind
	return r.writeLayout(img, fmt.Sprintf("%s/%s:%s", domain, name, tag(r.version)),
		filepath.Join(r.out, r.file(name+"-image", ".tar")))
}

// tag returns the version as the tag of an image, which has no "~" and no "+".
func tag(version string) string { return strings.NewReplacer("~", "-", "+", "-").Replace(version) }

// configured returns the image of one layer.
func (r release) configured(layer v1.Layer, config v1.Config) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(img, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: "cmd/packaging/dist.sh"},
	})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	config.Labels = map[string]string{
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.source":   "https://github.com/numalet/numalet",
	}
	file.OS, file.Architecture, file.Created, file.Config = "linux", r.arch, v1.Time{Time: r.time}, config
	return mutate.ConfigFile(img, file)
}

// library matches the lines of ldd.
var library = regexp.MustCompile(`(?m)^\s+(?:\S+ => )?(/\S+) \(0x`)

// linked lists the C libraries that a program needs, by where it looks for them; none for a static one.
func linked(program string) ([]string, error) {
	out, err := exec.Command("ldd", program).CombinedOutput()
	if strings.Contains(string(out), "not a dynamic executable") ||
		strings.Contains(string(out), "statically linked") {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("ldd %s: %w: %s", program, err, out)
	}
	var found []string
	for _, line := range library.FindAllSubmatch(out, -1) {
		found = append(found, string(line[1]))
	}
	at := slices.IndexFunc(found, func(path string) bool { return filepath.Base(path) == "libc.so.6" })
	if at < 0 {
		return nil, fmt.Errorf("ldd %s names no C library: %s", program, out)
	}
	for _, name := range []string{"libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"} {
		beside := filepath.Join(filepath.Dir(found[at]), name)
		if _, err := os.Stat(beside); err == nil && !slices.Contains(found, beside) {
			found = append(found, beside)
		}
	}
	return found, nil
}

// layer returns a layer with files, and the folders above them.
func (r release) layer(from map[string]string) (v1.Layer, error) {
	entries := map[string]entry{"tmp": {mode: 0o1777, dir: true}}
	for to, path := range from {
		for dir := filepath.Dir(to); dir != "."; dir = filepath.Dir(dir) {
			entries[dir] = entry{mode: 0o755, dir: true}
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		entries[to] = entry{mode: 0o755, raw: raw}
	}
	var all bytes.Buffer
	if err := writeTar(&all, entries, r.time); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(all.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// writeLayout writes an image and its name as the tar file of an OCI layout.
func (r release) writeLayout(img v1.Image, name, file string) error {
	dir, err := os.MkdirTemp("", "numalet-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	made, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := made.AppendImage(img, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name":          name, // the whole name, for "ctr images import"
		"org.opencontainers.image.ref.name": name[strings.LastIndexByte(name, ':')+1:],
	}), layout.WithPlatform(v1.Platform{OS: "linux", Architecture: r.arch})); err != nil {
		return err
	}
	entries := map[string]entry{}
	err = fs.WalkDir(os.DirFS(dir), ".", func(at string, e fs.DirEntry, err error) error {
		if err != nil || at == "." {
			return err
		}
		if e.IsDir() {
			entries[at] = entry{mode: 0o755, dir: true}
			return nil
		}
		raw, err := os.ReadFile(filepath.Join(dir, at))
		entries[path.Clean(at)] = entry{mode: 0o644, raw: raw}
		return err
	})
	if err != nil {
		return err
	}
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(writeTar(out, entries, r.time), out.Close())
}

// entry is a file or a folder of a tar file.
type entry struct {
	mode int64
	dir  bool
	raw  []byte
}

// writeTar writes entries in the order of their names, as root's.
func writeTar(w io.Writer, entries map[string]entry, at time.Time) error {
	var names []string
	for name := range entries {
		names = append(names, name)
	}
	slices.Sort(names)
	out := tar.NewWriter(w)
	for _, name := range names {
		e := entries[name]
		header := &tar.Header{
			Name: name, Mode: e.mode, ModTime: at, Typeflag: tar.TypeReg, Size: int64(len(e.raw)),
			Format: tar.FormatPAX,
		}
		if e.dir {
			header.Name, header.Typeflag = name+"/", tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(e.raw); err != nil {
			return err
		}
	}
	return out.Close()
}
