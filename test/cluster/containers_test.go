package cluster_test

import (
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/cmd/numalet-lab/containerd/workload"
	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
)

// TestRealContainers: users' commands for containers, through the API server and the node's own
// API, and what they show from inside, are the same on numalet and on the stock kubelet.
func TestRealContainers(t *testing.T) {
	said := map[string][]string{}
	for _, name := range agents {
		t.Run(name, func(t *testing.T) {
			c := rig.Start(t)
			agent, d, _ := containerdrig.Node(t)
			containerdrig.ImportShell(t, d)
			agent.Settings["syncFrequency"] = "1h" // changes are seen at once
			if name == "kubelet" {
				rig.StockKubelet(t, agent)
				agent.Settings["syncFrequency"] = "2s"
			}
			agent.Settings["containerLogMaxSize"] = "16Ki"
			agent.Settings["containerLogMonitorInterval"] = "3s"
			n := c.Join(agent, name)
			agingTokens(t, n)
			n.Start()
			c.AwaitReady(n.Name)
			c.Apply(`{apiVersion: v1, kind: Pod, metadata: {name: work}, spec: {
 automountServiceAccountToken: false, terminationGracePeriodSeconds: 1,
 containers: [{name: main, args: [--print], image: "` + containerd.WorkImage + `"}]}}`)
			c.MustRun("wait", "--for=condition=Ready", "pod/work", "--timeout=1m")
			testLogs(t, c)
			testExec(t, c)
			c.MustRun("delete", "pod", "work", "--timeout=1m")
			testFiles(t, c)
			said[name] = testShell(t, c, n, name == "numalet")
		})
	}
	for i, ours := range said["numalet"] {
		if theirs := said["kubelet"]; i < len(theirs) && ours != theirs[i] {
			t.Errorf("numalet: %s\nkubelet: %s", ours, theirs[i])
		}
	}
}

func testLogs(t *testing.T, c rig.Cluster) {
	all := c.MustRun("logs", "work")
	if r := reportIn(t, all); r.Hostname != "work" || r.PID != 1 {
		t.Errorf("the log has %+v", r)
	}
	if got := c.MustRun("logs", "work", "--limit-bytes=9"); got != all[:9] {
		t.Errorf("its first 9 bytes are %q of %q", got, all)
	}
	if got := c.MustRun("logs", "work", "--tail=0"); got != "" {
		t.Errorf("its last 0 lines are %q", got)
	}
	stamped := c.MustRun("logs", "work", "--timestamps")
	for line := range strings.Lines(stamped) {
		at, text, _ := strings.Cut(line, " ")
		if !strings.HasPrefix(at, "2") || !strings.Contains(all, text) {
			t.Errorf("a line with its time is %q", line)
		}
	}
	_, err := c.Run("logs", "work", "--previous")
	if err == nil || !strings.Contains(err.Error(),
		`previous terminated container "main" in pod "work" not found`) {
		t.Errorf("the log of a container before the first: %v", err)
	}
}

func testExec(t *testing.T, c rig.Cluster) {
	out, err := c.Run("exec", "work", "--", containerd.Program, "container", "work", "--print",
		"--exit=7")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Errorf("a command that ends with 7: %v", err)
	}
	if r := reportIn(t, out); r.Hostname != "work" || r.PID == 1 {
		t.Errorf("a command in the container sees %+v", r)
	}
	if _, err := c.Run("exec", "work", "--", "/not/there"); err == nil ||
		!strings.Contains(err.Error(), "/not/there") {
		t.Errorf("a command that is not there: %v", err)
	}
}

func reportIn(t *testing.T, text string) (r workload.Report) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Errorf("%v in %q", err, text)
	}
	return r
}
