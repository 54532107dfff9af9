package test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// logsOf returns the files in the directory of a container's logs.
func logsOf(n *harness.Node, pod v1.Pod, container string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(n.Dir, "logs",
		fmt.Sprintf("%s_%s_%s", pod.Namespace, pod.Name, pod.UID), container))
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out, err
}

// TestLogRotation: the log of a running container that has reached its size limit is rotated, and
// the number of files is kept to its limit. An agent that was killed between the rotation and the
// reopening of the log has the log reopened when it is back.
func TestLogRotation(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["containerLogMaxSize"] = "1Ki"
	n.Settings["containerLogMaxFiles"] = 3
	n.Settings["containerLogMonitorInterval"] = "3s"
	n.Start()
	n.Pod("talks", plain("talks"))
	pod := n.AwaitPhase("talks-node", v1.PodRunning)
	dir := filepath.Join(n.Dir, "logs", "default_talks-node_"+string(pod.UID), "main")
	log := filepath.Join(dir, "0.log")
	talk := func() {
		f, err := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(strings.Repeat("x", 1024) + "\n"); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		talk()
		n.Eventually(fmt.Sprintf("rotation %d", i+1), func() error {
			info, err := os.Stat(log)
			names, _ := logsOf(n, pod, "main")
			packed := 0
			for _, name := range names {
				if strings.HasSuffix(name, ".gz") {
					packed++
				}
			}
			if err != nil || info.Size() > 0 || len(names) != min(i+2, 3) || packed != min(i, 1) {
				return fmt.Errorf("there are %q, %v", names, err)
			}
			return nil
		})
	}
	n.Kill()
	if err := os.Rename(log, log+".20000101-000000"); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Eventually("the log is opened again", func() error {
		_, err := os.Stat(log)
		return err
	})
	if got := len(calls(n, call{method: "StartContainer"})); got != 1 {
		t.Errorf("%d starts", got)
	}
}

// exits returns the runtime's records of exited containers of a pod.
func exits(n *harness.Node, pod string) (out []crisim.Container) {
	for _, c := range n.Runtime.State().Containers {
		if c.Subject.Pod == pod && c.State == "EXITED" {
			out = append(out, c)
		}
	}
	return out
}

// TestDeadContainers: of a container that exits again and again, the runtime keeps as many records
// as configured. Logs are removed with their record.
func TestDeadContainers(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "1s"}
	n.Args = append(n.Args, "--maximum-dead-containers-per-container=2")
	n.Start()
	n.Pod("crash", plain("crash", "main: exit=1 after=1ms"))
	awaitCalls(n, 6, call{method: "StartContainer"})
	pod := awaitPod(n, "crash-node", func(p v1.Pod) error {
		if s := statusOf(t, p, "main"); s.RestartCount < 5 {
			return fmt.Errorf("it was restarted %d times", s.RestartCount)
		}
		return nil
	})
	n.Eventually("three records are left, and their logs", func() error {
		names, err := logsOf(n, pod, "main")
		if err != nil {
			return err
		}
		// There is one more while a container starts.
		if got := len(exits(n, "crash-node")); got < 2 || got > 3 || len(names) > 4 {
			return fmt.Errorf("%d exits, logs %q", got, names)
		}
		if _, err := os.Stat(filepath.Join(n.Dir, "logs",
			"default_crash-node_"+string(pod.UID), "main", "0.log")); !errors.Is(err,
			fs.ErrNotExist) {
			return fmt.Errorf("the first log: %v", err)
		}
		return nil
	})
}

// TestDeadContainersInAll: beyond the limit for all pods the oldest records go, but not the newest
// of each container. No container restarts because of that.
func TestDeadContainersInAll(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["crashLoopBackOff"] = map[string]any{"maxContainerRestartPeriod": "300s"}
	n.Args = append(n.Args, "--maximum-dead-containers=1")
	n.Start()
	n.Pod("crash", plain("crash", "main: exit=1 after=1ms"))
	n.Pod("done", strings.Replace(plain("done", "main: exit=0 after=1ms"), "spec:",
		"spec:\n  restartPolicy: Never", 1))
	n.AwaitPhase("done-node", v1.PodSucceeded)
	awaitCalls(n, 2, call{method: "StartContainer", pod: "crash-node"})
	n.Eventually("one record of each is left", func() error {
		crash, done := len(exits(n, "crash-node")), len(exits(n, "done-node"))
		if crash != 1 || done != 1 {
			return fmt.Errorf("there are %d and %d", crash, done)
		}
		return nil
	})
	if got := len(calls(n, call{method: "StartContainer", pod: "done-node"})); got != 1 {
		t.Errorf("the pod that is done was started %d times", got)
	}
}

// TestLogsOfWhatIsGone: the log directory of an unknown pod is removed, the directories of existing
// pods stay.
func TestLogsOfWhatIsGone(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	orphan := filepath.Join(n.Dir, "logs", "default_gone_0123-4567")
	if err := os.MkdirAll(filepath.Join(orphan, "main"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Pod("runs", plain("runs"))
	pod := n.AwaitPhase("runs-node", v1.PodRunning)
	kept := filepath.Join(n.Dir, "logs", "default_runs-node_"+string(pod.UID))
	old := time.Now().Add(-time.Hour)
	for _, dir := range []string{orphan, kept} {
		if err := os.Chtimes(dir, old, old); err != nil {
			t.Fatal(err)
		}
	}
	n.Eventually("the logs of a pod that is gone are gone", func() error {
		if _, err := os.Stat(orphan); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("they are there: %v", err)
		}
		return nil
	})
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
}
