package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// staged returns a folder like that of dist.sh, made by install.sh of programs that are shell scripts.
func staged(t *testing.T) (stage string) {
	t.Helper()
	stage = t.TempDir()
	for _, dir := range []string{"bin", "manual"} {
		if err := os.Mkdir(filepath.Join(stage, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, program := range []string{"numalet", "numalet-lab", "numalet-gpu"} {
		write(t, filepath.Join(stage, "bin", program), "#!/bin/sh\necho "+program+" $*\n", 0o755)
		write(t, filepath.Join(stage, "manual", program+".1"), ".TH "+program+"\n", 0o644)
		write(t, filepath.Join(stage, "manual", program+"-more.1"), ".TH "+program+" more\n", 0o644)
	}
	for _, program := range []string{"numalet", "numalet-lab", "numalet-gpu"} {
		install(t, "install", filepath.Join(stage, program), "/usr", stage, program)
	}
	return stage
}

func install(t *testing.T, what, dest, prefix, stage string, programs ...string) {
	t.Helper()
	args := append([]string{what, dest, prefix, filepath.Join(stage, "bin"), filepath.Join(stage, "manual")},
		programs...)
	if out, err := exec.Command("./install.sh", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// listed returns the files of a folder, at any depth.
func listed(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// atRoot has the test run where dist.sh runs, the repository.
func atRoot(t *testing.T) { t.Chdir("../..") }

// TestInstall: what is installed is removed again, and the units name the programs where they are.
func TestInstall(t *testing.T) {
	stage := staged(t)
	got := listed(t, filepath.Join(stage, "numalet"))
	want := []string{
		"usr/bin/numalet",
		"usr/lib/systemd/system/numalet.service", "usr/lib/systemd/system/numalet.service.d/10-kubeadm.conf",
		"usr/share/bash-completion/completions/numalet", "usr/share/doc/numalet/CHANGELOG.md",
		"usr/share/doc/numalet/LICENSE", "usr/share/fish/vendor_completions.d/numalet.fish",
		"usr/share/man/man1/numalet-more.1.gz", "usr/share/man/man1/numalet.1.gz",
		"usr/share/zsh/site-functions/_numalet",
	}
	if !slices.Equal(got, want) {
		t.Errorf("installed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	dest := t.TempDir()
	install(t, "install", dest, "/opt/n", stage, "numalet", "numalet-lab", "numalet-gpu")
	unit, err := os.ReadFile(filepath.Join(dest, "opt/n/lib/systemd/system/numalet.service"))
	if err != nil || !strings.Contains(string(unit), "\nExecStart=/opt/n/bin/numalet ") {
		t.Errorf("%v: the unit is\n%s", err, unit)
	}
	install(t, "uninstall", dest, "/opt/n", stage, "numalet", "numalet-lab", "numalet-gpu")
	if left := listed(t, dest); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// made makes packages and images of a stage, as dist.sh does.
func made(t *testing.T, version string, stage string) (out string) {
	t.Helper()
	out = t.TempDir()
	flags := []string{"-version", version, "-epoch", "1700000000", "-arch", "amd64", "-out", out}
	for _, words := range [][]string{{"packages", stage}, {"image", "gpu", filepath.Join(stage, "bin/numalet-gpu")}} {
		if err := run(append(slices.Clone(flags), words...)); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestReproducible: the hour, the folder and the modes of a machine are in no byte of what is made.
func TestReproducible(t *testing.T) {
	one, other := staged(t), staged(t)
	hour := time.Now().Add(-1000 * time.Hour)
	for _, file := range listed(t, other) {
		if err := os.Chtimes(filepath.Join(other, file), hour, hour); err != nil {
			t.Fatal(err)
		}
	}
	atRoot(t)
	a, b := made(t, "0.1.0", one), made(t, "0.1.0", other)
	names := listed(t, a)
	if !slices.Equal(names, listed(t, b)) || len(names) != 7 {
		t.Fatalf("made %q and %q", names, listed(t, b))
	}
	for _, name := range names {
		x, _ := os.ReadFile(filepath.Join(a, name))
		y, _ := os.ReadFile(filepath.Join(b, name))
		if len(x) == 0 || !bytes.Equal(x, y) {
			t.Errorf("%s: the bytes differ", name)
		}
	}
}

// TestImage: the image is an OCI layout, with the program and its entry point.
func TestImage(t *testing.T) {
	stage := staged(t)
	atRoot(t)
	out := made(t, "0.1.0~git1", stage)
	dir := t.TempDir()
	untar(t, filepath.Join(out, "numalet-gpu-image_0.1.0~git1_amd64.tar"), dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("%v: %+v", err, manifest)
	}
	of := manifest.Manifests[0]
	if name := of.Annotations["io.containerd.image.name"]; name != "numalet.io/numalet-gpu:0.1.0-git1" {
		t.Errorf("the image is called %q", name)
	}
	img, err := index.Image(of.Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil || !slices.Equal(config.Config.Entrypoint, []string{"/usr/bin/numalet-gpu"}) {
		t.Errorf("%v: %+v", err, config)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%v: %d layers", err, len(layers))
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	found := false
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found = found || header.Name == "usr/bin/numalet-gpu" && header.Mode == 0o755
	}
	if !found {
		t.Error("the program is not in the image")
	}
}

func untar(t *testing.T, file, dir string) {
	t.Helper()
	if out, err := exec.Command("tar", "-C", dir, "-xf", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// TestLinked: a program that needs the C library brings it along, with the loader; a script needs none.
func TestLinked(t *testing.T) {
	libraries, err := linked("/bin/sh")
	names := map[string]bool{}
	for _, path := range libraries {
		names[filepath.Base(path)] = true
	}
	loader := slices.ContainsFunc(libraries, func(path string) bool { return strings.HasPrefix(filepath.Base(path), "ld-") })
	if err != nil || !names["libc.so.6"] || !names["libdl.so.2"] || !loader {
		t.Errorf("%v: %q", err, libraries)
	}
	if libraries, err := linked("install.sh"); err != nil || len(libraries) > 0 {
		t.Errorf("a script: %v: %q", err, libraries)
	}
}

// TestParts: what a program is made of is listed with versions and licences.
func TestParts(t *testing.T) {
	program, out := os.Args[0], t.TempDir()
	r := release{version: "0.1.0", time: time.Unix(1700000000, 0).UTC(), arch: "amd64", out: out}
	if err := r.sbom(program); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(out, r.file(filepath.Base(program), ".cdx.json")))
	for _, want := range []string{`"bomFormat": "CycloneDX"`, `"name": "github.com/goreleaser/nfpm/v2"`,
		"pkg:golang/github.com/google/go-containerregistry@v", `"timestamp": "2023-11-14T22:13:20Z"`} {
		if err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%v: no %s in %.300s", err, want, raw)
		}
	}
	if err := notices(filepath.Join(out, "notices"), []string{program}); err != nil {
		t.Fatal(err)
	}
	raw, err = os.ReadFile(filepath.Join(out, "notices"))
	if want := "======== github.com/goreleaser/nfpm/v2@"; err != nil || !strings.Contains(string(raw), want) {
		t.Errorf("%v: no %s in %.300s", err, want, raw)
	}
}

// TestCommandLine: words that are wrong are answered with those that are right.
func TestCommandLine(t *testing.T) {
	for _, words := range [][]string{{}, {"-version", "1", "image", "gpu"}, {"packages", "x"}} {
		if err := run(words); err == nil || !strings.Contains(fmt.Sprint(err), "packages STAGE") {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// TestManual: a program built with the tag writes the pages of its commands, with their flags, and no day of its own.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("go", "run", "-tags", "manual", "./cmd/numalet-gpu", "manual", dir)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := listed(t, dir); !slices.Equal(got, []string{"numalet-gpu-ctl.1", "numalet-gpu.1"}) {
		t.Errorf("written: %q", got)
	}
	page, err := os.ReadFile(filepath.Join(dir, "numalet-gpu.1"))
	for _, want := range []string{`.TH "NUMALET-GPU" "1" "Nov 2023"`, `\fB--mig-strategy\fP`, ".SH EXAMPLE"} {
		if err != nil || !strings.Contains(string(page), want) {
			t.Errorf("%v: no %s in\n%.1000s", err, want, page)
		}
	}
}
