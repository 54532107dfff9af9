package containerd_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestLogFiles: the log of a container that writes on and on is rotated, the older files compressed,
// and no line is lost from the oldest file that there is to the newest; of containers that exit again
// and again one record and its log stay.
func TestLogFiles(t *testing.T) {
	w := newWorld(t)
	w.Settings["containerLogMaxSize"] = "4Ki"
	w.Settings["containerLogMaxFiles"] = 4
	w.Settings["containerLogMonitorInterval"] = "3s"
	w.Settings["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "1s"}
	w.Start()
	talks := w.run("talks", simple("--count=10ms"))
	w.create("crash", simple("--exit=1"))
	w.Eventually("three files are full, two of them compressed", func() error {
		files, err := filepath.Glob(filepath.Join(w.logDir(talks, "main"), "0.log*"))
		packed := strings.Count(strings.Join(files, "\n")+"\n", ".gz\n")
		if err == nil && (len(files) != 4 || packed != 2) {
			err = fmt.Errorf("there are %q", files)
		}
		if err != nil {
			return err
		}
		return consecutive(files)
	})
	crash, err := w.Pods()
	if err != nil {
		t.Fatal(err)
	}
	w.awaitContainer("crash-node", "main", "was restarted four times",
		func(s v1.ContainerStatus) bool { return s.RestartCount >= 4 })
	w.Eventually("the logs of all but the last lives are gone", func() error {
		files, err := filepath.Glob(filepath.Join(w.logDir(crash["crash-node"], "main"), "*.log"))
		if err == nil && (len(files) == 0 || len(files) > 3 || filepath.Base(files[0]) == "0.log") {
			err = fmt.Errorf("there are %q", files)
		}
		return err
	})
}

// logDir returns the folder of the container's logs.
func (w world) logDir(pod v1.Pod, container string) string {
	return filepath.Join(w.Dir, "logs",
		fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID), container)
}

// consecutive reports whether the lines in the files are numbered without a gap. The newest file is
// first in the order of names: the others are called after the time of their end.
func consecutive(files []string) error {
	last := -1
	for _, file := range append(files[1:len(files):len(files)], files[0]) {
		text, err := content(file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			var n int
			parts := logLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
			if parts == nil {
				return fmt.Errorf("%s: not a line of a CRI log: %q", file, line)
			}
			if _, err := fmt.Sscanf(parts[3], "line %d", &n); err != nil {
				return fmt.Errorf("%s: %q: %w", file, parts[3], err)
			}
			if last >= 0 && n != last+1 {
				return fmt.Errorf("%s: line %d comes after line %d", file, n, last)
			}
			last = n
		}
	}
	if last < 0 {
		return errors.New("there are no lines")
	}
	return nil
}

// content returns a file's content, unpacked.
func content(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	var from io.Reader = f
	if strings.HasSuffix(file, ".gz") {
		if from, err = gzip.NewReader(f); err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
	}
	text, err := io.ReadAll(from)
	return string(text), err
}
