package scaffold

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func config(kind Kind) Config {
	return Config{
		Kind: kind, Name: "widgets", Version: "v0.1.0", Replace: "../..", Go: "1.26.0",
	}
}

// The module of each kind builds and passes its own tests in a fresh directory, with the modules that
// numalet itself is built with.
func TestModulesPass(t *testing.T) {
	for _, kind := range []Kind{Plugin, Driver} {
		t.Run(string(kind), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "widgets")
			if _, err := Write(dir, config(kind)); err != nil {
				t.Fatal(err)
			}
			run := func(name string, args ...string) string {
				t.Helper()
				cmd := exec.CommandContext(t.Context(), name, args...)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "CGO_ENABLED=0",
					"GONOSUMDB=*", "GOSUMDB=off", "GOWORK=off", "GOTOOLCHAIN=local")
				out, err := cmd.CombinedOutput()
				if err != nil {
					t.Fatalf("%s %q: %v\n%s", name, args, err, out)
				}
				return string(out)
			}
			run("go", "build", "-o", "widgets", ".")
			run("go", "vet", "./...")
			out := run("go", "test", "-v", "-count=1", "./...")
			if !strings.Contains(out, "0 failed, 0 with warnings") {
				t.Errorf("the check of the kit did not run well:\n%s", out)
			}
			if out := run("gofmt", "-l", "."); out != "" {
				t.Errorf("not formatted: %s", out)
			}
			run("./image.sh")
			first := checkImage(t, filepath.Join(dir, "widgets.tar"), filepath.Join(dir, "widgets"))
			run("./image.sh")
			if checkImage(t, filepath.Join(dir, "widgets.tar"), filepath.Join(dir, "widgets")) != first {
				t.Error("the same program gives another image")
			}
		})
	}
}

// checkImage follows the digests of an OCI archive to the program in its layer. It returns the digest of
// the manifest.
func checkImage(t *testing.T, path, program string) string {
	t.Helper()
	archive, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, bytes.NewReader(archive))
	type descriptor struct {
		Digest string `json:"digest"`
		Size   int    `json:"size"`
	}
	blob := func(d descriptor) []byte {
		t.Helper()
		name := strings.TrimPrefix(d.Digest, "sha256:")
		raw := files["blobs/sha256/"+name]
		if fmt.Sprintf("%x", sha256.Sum256(raw)) != name || len(raw) != d.Size {
			t.Fatalf("blob %s has %d bytes, want %d of that digest", d.Digest, len(raw), d.Size)
		}
		return raw
	}
	read := func(raw []byte, into any) {
		t.Helper()
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
	}
	var index struct {
		Manifests []descriptor `json:"manifests"`
	}
	read(files["index.json"], &index)
	var manifest struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	read(blob(index.Manifests[0]), &manifest)
	var about struct {
		Config struct{ Entrypoint []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	read(blob(manifest.Config), &about)
	unzipped, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(unzipped)
	if err != nil {
		t.Fatal(err)
	}
	if id := fmt.Sprintf("sha256:%x", sha256.Sum256(layer)); !slices.Equal(about.Rootfs.DiffIDs, []string{id}) ||
		!slices.Equal(about.Config.Entrypoint, []string{"/widgets"}) {
		t.Errorf("%+v, want the layer %s", about, id)
	}
	want, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(untar(t, bytes.NewReader(layer))["widgets"], want) {
		t.Error("the image has another program")
	}
	return index.Manifests[0].Digest
}

func untar(t *testing.T, from io.Reader) map[string][]byte {
	t.Helper()
	out, archive := map[string][]byte{}, tar.NewReader(from)
	for {
		header, err := archive.Next()
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(header.Name, "./")] = raw
	}
}

// Each file is written, and what is YAML can be read as such.
func TestWrite(t *testing.T) {
	for _, kind := range []Kind{Plugin, Driver} {
		dir := filepath.Join(t.TempDir(), "widgets")
		cfg := config(kind)
		cfg.Serves, cfg.Module = "parts.vendor.com/w", "vendor.com/nodes/widgets"
		if kind == Driver {
			cfg.Serves = "w.vendor.com"
		}
		paths, err := Write(dir, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"go.mod", "main.go", "main_test.go", "daemonset.yaml", "image.sh",
			"Makefile", "README.md", ".gitignore", ".github/workflows/test.yml"} {
			if !slices.Contains(paths, path) {
				t.Errorf("%s: there is no %s among %q", kind, path, paths)
			}
		}
		for _, path := range paths {
			raw, err := os.ReadFile(filepath.Join(dir, path))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(raw, []byte("[[.")) {
				t.Errorf("%s: %s has an open place", kind, path)
			}
			for doc := range strings.SplitSeq(string(raw), "\n---\n") {
				var into map[string]any
				if strings.HasSuffix(path, "ml") {
					if err := yaml.Unmarshal([]byte(doc), &into); err != nil {
						t.Errorf("%s: %s: %v", kind, path, err)
					}
				}
			}
		}
		main, err := os.ReadFile(filepath.Join(dir, "main.go"))
		if err != nil || !strings.Contains(string(main), `"`+cfg.Serves+`"`) {
			t.Errorf("%s: %v; it does not serve %s", kind, err, cfg.Serves)
		}
		if _, err := Write(dir, cfg); err == nil || !strings.Contains(err.Error(), "exists: choose") {
			t.Errorf("%s: written again: %v", kind, err)
		}
	}
}

// What cannot be built is refused before anything is written.
func TestRefuses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Name = "A b" }, `the name "A b"`},
		{func(c *Config) { c.Module = "a b" }, "--module"},
		{func(c *Config) { c.Serves = "gpu" }, `--resource "gpu"`},
		{func(c *Config) { c.Kind, c.Serves = Driver, "A_b" }, `--driver "A_b"`},
		{func(c *Config) { c.Replace = "/nowhere" }, "name the directory of numalet's source"},
		{func(c *Config) { c.Kind = "both" }, "no kind"},
	} {
		cfg := config(Plugin)
		tc.change(&cfg)
		if _, err := Write(dir, cfg); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s: something was written", tc.want)
		}
	}
}

var rewrite = flag.Bool("rewrite", false, "write examples/driver anew")

// "numalet driver new widgets-driver" has written examples/driver, as a part of this module.
func TestSampleDriver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "widgets-driver")
	cfg := config(Driver)
	cfg.Name = "widgets-driver"
	paths, err := Write(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if filepath.Ext(path) != ".go" {
			continue
		}
		want, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			t.Fatal(err)
		}
		sample := filepath.Join("../../examples/driver", path)
		if *rewrite {
			if err := os.WriteFile(sample, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(sample); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from the template (%v): go test -rewrite writes it anew", sample, err)
		}
	}
}
