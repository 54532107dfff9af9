package test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"github.com/numalet/numalet/test/harness"
)

// TestPluginManifests: the programs know the flags that the manifests of their DaemonSets give them, and each
// folder that a flag names is mounted.
func TestPluginManifests(t *testing.T) {
	t.Parallel()
	lab, err := harness.Lab()
	if err != nil {
		t.Fatal(err)
	}
	programs := map[string][]string{
		"numalet-gpu": {harness.GPUPlugin(t)}, "numalet-eni": {lab, "plugin", "eni"},
	}
	files, err := filepath.Glob("../cmd/packaging/manifests/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("%v: the manifests are %q", err, files)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		at := bytes.Index(text, []byte("apiVersion: apps/v1\nkind: DaemonSet\n"))
		if at < 0 {
			t.Fatalf("%s has no DaemonSet", file)
		}
		whole, _, _ := bytes.Cut(text[at:], []byte("\n---\n"))
		var set appsv1.DaemonSet
		if err := yaml.Unmarshal(whole, &set); err != nil {
			t.Fatal(err)
		}
		container := set.Spec.Template.Spec.Containers[0]
		words := append(programs[set.Name], "--help")
		help, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		for _, arg := range container.Args {
			name, value, _ := strings.Cut(arg, "=")
			if !regexp.MustCompile(regexp.QuoteMeta(name) + `\b`).Match(help) {
				t.Errorf("%s: %s does not know %s", file, set.Name, name)
			}
			if strings.HasPrefix(value, "/") && !mounted(set, value) {
				t.Errorf("%s: nothing is mounted where %s is", file, arg)
			}
		}
		if len(container.Args) == 0 || !strings.HasPrefix(container.Image, "numalet.io/"+set.Name+":") {
			t.Errorf("%s: %s has the arguments %q", file, container.Image, container.Args)
		}
	}
}

// mounted reports whether the path, or a folder below it, is a mount of the host's.
func mounted(set appsv1.DaemonSet, path string) bool {
	for _, mount := range set.Spec.Template.Spec.Containers[0].VolumeMounts {
		if strings.HasPrefix(path+"/", mount.MountPath+"/") || strings.HasPrefix(mount.MountPath, path+"/") {
			return true
		}
	}
	return false
}
