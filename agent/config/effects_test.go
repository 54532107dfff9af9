package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// TestEffectsAreThoseOfTheCode: the table lists a field of the configuration if, and only if, code
// outside this package reads it.
func TestEffectsAreThoseOfTheCode(t *testing.T) {
	table, read := effects(), fieldsRead(t)
	for field := range reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]().Fields() {
		path, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch path {
		case "", "featureGates", "logging": // this package's own
			continue
		}
		said := false
		for name := range table {
			said = said || name == path || strings.HasPrefix(name, path+".")
		}
		if said != read[field.Name] {
			t.Errorf("%s: is read: %v; has an effect by the table: %v", path, read[field.Name], said)
		}
	}
}

// fieldsRead returns the names of all fields that the agent's code reads.
func fieldsRead(t *testing.T) map[string]bool {
	t.Helper()
	selector, out := regexp.MustCompile(`\.([A-Z]\w*)`), map[string]bool{}
	for _, root := range []string{"..", "../../cmd"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir() && e.Name() == "config":
				return filepath.SkipDir
			case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			text, err := os.ReadFile(path)
			for _, match := range selector.FindAllSubmatch(text, -1) {
				out[string(match[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}
