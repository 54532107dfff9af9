package scaffold

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"golang.org/x/mod/module"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/topology/podspec"
)

// Kind says what is written.
type Kind string

// The kinds.
const (
	Plugin Kind = "plugin"
	Driver Kind = "driver"
)

// Config describes the new module.
type Config struct {
	Kind Kind
	// Name is that of the program, of its image and of its objects in the cluster.
	Name string
	// Module is the module's path; "": example.com/NAME.
	Module string
	// Serves is the plugin's resource or the driver's name; "": example.com/NAME, NAME.example.com.
	Serves string
	// Version is the version of numalet that the module requires.
	Version string
	// Replace is a directory with numalet's source, which is used in place of that version. Optional.
	Replace string
	// Go is the version of Go that the module requires.
	Go string
}

//go:embed all:files
var files embed.FS

// ending marks templates, so that tools do not take them for source.
const ending = ".tmpl"

func (c Config) withDefaults() (Config, error) {
	if wrong := validation.IsDNS1123Label(c.Name); len(wrong) > 0 {
		return c, fmt.Errorf("the name %q: %s", c.Name, wrong[0])
	}
	c.Module = cmp.Or(c.Module, "example.com/"+c.Name)
	if err := module.CheckImportPath(c.Module); err != nil {
		return c, fmt.Errorf("--module: %w", err)
	}
	switch c.Kind {
	case Plugin:
		c.Serves = cmp.Or(c.Serves, "example.com/"+c.Name)
		if !podspec.IsExtended(c.Serves) {
			return c, fmt.Errorf("--resource %q: choose a name such as vendor.com/device, with a "+
				"domain that is not kubernetes.io", c.Serves)
		}
	case Driver:
		c.Serves = cmp.Or(c.Serves, c.Name+".example.com")
		if wrong := validation.IsDNS1123Subdomain(c.Serves); len(wrong) > 0 {
			return c, fmt.Errorf("--driver %q: %s", c.Serves, wrong[0])
		}
	default:
		return c, fmt.Errorf("there is no kind %q", c.Kind)
	}
	if c.Replace == "" {
		return c, nil
	}
	dir, err := filepath.Abs(c.Replace)
	if err != nil {
		return c, err
	}
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		return c, fmt.Errorf("--numalet: %w: name the directory of numalet's source", err)
	}
	c.Replace = dir
	return c, nil
}

// Write writes the module into a new directory. It returns the paths of the files in it.
func Write(dir string, cfg Config) (paths []string, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("%s exists: choose another name, or remove it", dir)
		}
		return nil, err
	}
	for _, part := range []string{"both", string(cfg.Kind)} {
		root := "files/" + part
		err := fs.WalkDir(files, root, func(at string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			path := strings.TrimSuffix(strings.TrimPrefix(at, root+"/"), ending)
			paths = append(paths, path)
			return write(filepath.Join(dir, path), at, cfg)
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

// write writes one file of the module. Scripts are executable.
func write(path, from string, cfg Config) error {
	raw, err := files.ReadFile(from)
	if err != nil {
		return err
	}
	page, err := template.New(from).Delims("[[", "]]").Option("missingkey=error").Parse(string(raw))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if err := page.Execute(&out, cfg); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if strings.HasSuffix(path, ".sh") {
		mode = 0o755
	}
	return os.WriteFile(path, out.Bytes(), mode)
}
