package crisim_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
)

// TestInside: commands in a container see its variables and the files of its mounts, and of the host's
// files no others, also not through links.
func TestInside(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"secret": "not for pods\n", "hosts": "127.0.0.1 localhost\n",
		"volume/settings": "colour: blue\n", "volume/sub/more": "more\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"settings inside", "../secret outside", filepath.Join(dir, "secret") + " absolute"} {
		to, at, _ := strings.Cut(link, " ")
		if err := os.Symlink(to, filepath.Join(dir, "volume", at)); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, crisim.Config{})
	cfg := containerConfig("c")
	cfg.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/etc/hosts", HostPath: filepath.Join(dir, "hosts")},
		{ContainerPath: "/data/settings", HostPath: filepath.Join(dir, "volume")},
		{ContainerPath: "/data/settings/sub", HostPath: filepath.Join(dir, "volume/sub")},
	}
	_, id := r.start(sandboxConfig("p"), cfg)
	for command, want := range map[string]string{
		"env":                         "NAME=c\n",
		"printenv NAME":               "c\n",
		"cat /etc/hosts":              "127.0.0.1 localhost\n",
		"cat /data/settings/settings": "colour: blue\n",
		"cat /data/settings/inside":   "colour: blue\n",
		"cat /data/settings/../settings/sub/more": "more\n",
		"ls /":                  "data\netc\n",
		"ls -la /data":          "settings\n",
		"ls /data/settings":     "absolute\ninside\noutside\nsettings\nsub\n",
		"ls /data/settings/sub": "more\n",
		"ls /etc/hosts":         "/etc/hosts\n",
	} {
		out, errs, err := r.run.ExecSync(r.ctx, id, []string{"sh", "-c", command}, time.Minute)
		if err != nil || string(out) != want || len(errs) > 0 {
			t.Errorf("%s: %q, %q, %v; want %q", command, out, errs, err, want)
		}
	}
	for command, want := range map[string]string{
		"cat /etc/passwd":                 "the container is simulated",
		"ls /root":                        "/data/settings /data/settings/sub /etc/hosts",
		"cat /data/settings/outside":      "escapes",
		"cat /data/settings/absolute":     "escapes",
		"cat /data/settings/../../secret": "the container is simulated",
		"cat /data/settings":              "it is no file",
		"cat /data/settings/none":         "no such file",
		"cat /etc/hosts/below":            "not exist",
		"nvidia-smi":                      "nvidia-smi: not found: this container is simulated",
		"printenv NONE":                   "",
	} {
		out, errs, err := r.run.ExecSync(r.ctx, id, []string{"sh", "-c", command}, time.Minute)
		if err == nil || len(out) > 0 || !strings.Contains(string(errs), want) || strings.Contains(string(errs), dir) {
			t.Errorf("%s: %q, %q, %v; want an error with %q", command, out, errs, err, want)
		}
	}
}
