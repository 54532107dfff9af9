package workload

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/utils/cpuset"
)

func TestReport(t *testing.T) {
	t.Setenv("NUMALET_TEST", "a=b")
	file := filepath.Join(t.TempDir(), "report")
	if err := (work{out: file}).run(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(text, []byte("\n")) != 1 {
		t.Errorf("not one line: %q", text)
	}
	var r Report
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	if cpus, err := cpuset.Parse(r.CPUs); err != nil || cpus.IsEmpty() {
		t.Errorf("CPUs %q: %v", r.CPUs, err)
	}
	if r.Env["NUMALET_TEST"] != "a=b" || r.PID != os.Getpid() || r.User.UID != os.Getuid() {
		t.Errorf("report %+v", r)
	}
	null := Device{Path: "/dev/null", Type: "c", Major: 1, Minor: 3}
	if !slices.Contains(r.Devices, null) {
		t.Errorf("devices %v lack %v", r.Devices, null)
	}
	if len(r.Mounts) == 0 || len(r.Cgroups) == 0 {
		t.Errorf("no mounts or no cgroups in %s", text)
	}
}

// TestEnds covers each way in which a container can end.
func TestEnds(t *testing.T) {
	term := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	for name, w := range map[string]work{
		"at once": {exit: 3},
		"later":   {after: time.Millisecond, ignoreTerm: true},
	} {
		t.Run(name, func(t *testing.T) {
			if err := w.run(t.Context(), true); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("SIGTERM", func(t *testing.T) {
		done := make(chan error, 1)
		file := filepath.Join(t.TempDir(), "ready")
		go func() { done <- work{out: file}.run(t.Context(), false) }()
		for !exists(file) {
			time.Sleep(time.Millisecond) // signals are caught before the report is written
		}
		term()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}
