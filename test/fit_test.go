package test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/test/harness"
)

// fits runs "numalet fit" on manifests and returns its output, its error output and its exit code.
func fits(t *testing.T, manifests string, args ...string) (out, complaint string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, binary, append([]string{"fit", "-f", "-"}, args...)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(manifests), &stdout, &stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// answers is fits with -o json.
func answers(t *testing.T, manifests string, args ...string) fit.Answer {
	t.Helper()
	out, complaint, code := fits(t, manifests, append(args, "-o", "json")...)
	var a fit.Answer
	if err := json.Unmarshal([]byte(out), &a); err != nil {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, complaint)
	}
	if a.Fits != (code == 0) || complaint != "" {
		t.Errorf("exit code %d and %q with fits %v", code, complaint, a.Fits)
	}
	return a
}

// A running agent does what it predicted.
func TestFitAsksTheAgent(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Settings["topologyManagerPolicy"] = "single-numa-node"
	n.Start()
	n.Plugin("example.com/nic", "--devices=4", "--nodes=0-3")
	server := "--server=" + strings.TrimSuffix(n.URL("/"), "/")
	ask := func(manifest string, args ...string) fit.Answer {
		t.Helper()
		return answers(t, manifest, append(args, server)...)
	}

	first := limited("first", "cpu: 4, memory: 1Gi, example.com/nic: 1")
	before := ask(first, "--ask-plugins").Pods[0]
	if before.Record.Outcome != "Admit" || len(before.Containers) != 1 ||
		!*before.Containers[0].Aligned {
		t.Fatalf("%+v", before)
	}
	n.Pod("first", first)
	n.AwaitPhase("first-node", v1.PodRunning)
	rows, err := n.Placements()
	if err != nil {
		t.Fatal(err)
	}
	row, want := rows["first-node/main"], before.Containers[0]
	if row.CPUs != want.CPUs || row.NUMANodes != want.NUMANodes ||
		row.Devices["example.com/nic"][0] != want.Devices["example.com/nic"][0] {
		t.Errorf("placed as %+v, foretold %+v", row, want)
	}

	// In the live state one of the four is in use.
	if a := ask(first, "--count=max"); !a.Fits || a.Copies != 3 {
		t.Errorf("%d copies fit beside the first pod, want 3: %s", a.Copies, a.Text())
	}
	if a := ask(first, "--count=4"); a.Fits || a.Copies != 3 || len(a.Pods) != 4 {
		t.Errorf("four copies: %+v", a)
	}
	torn := limited("torn", "cpu: 2, memory: 1Gi, example.com/nic: 2")
	forecast := ask(torn).Pods[0].Record
	n.Pod("torn", torn)
	status := n.AwaitPhase("torn-node", v1.PodFailed).Status
	if forecast.Outcome != "Reject" || forecast.Reason != status.Reason ||
		!strings.HasSuffix(status.Message, forecast.Message) || len(forecast.WouldFit) == 0 {
		t.Errorf("foretold %+v, came %q %q", forecast.Verdict, status.Reason, status.Message)
	}
	// The event has more than the status.
	n.Eventually("the event says what would fit", func() error {
		event := `reason="TopologyAffinityError" message="Resources cannot be allocated with ` +
			`Topology locality; example.com/nic of container main: 2 asked for on one NUMA node`
		if tail := n.LogTail(500); !strings.Contains(tail, event) {
			return errors.New("there is no event " + event)
		}
		return nil
	})
	if pods, err := n.Pods(); err != nil || len(pods) != 2 {
		t.Errorf("questions left pods: %v, %v", pods, err)
	}
	if strings.Contains(status.Message, "asked for on one NUMA node") {
		t.Errorf("the status has more than the kubelet's message: %q", status.Message)
	}

	for name, tc := range map[string]struct {
		body, query, say string
		code             int
	}{
		"no pod": {"kind: Service\napiVersion: v1\n", "", "want Pods", http.StatusBadRequest},
		"count":  {first, "?count=0", "want a number from 1", http.StatusBadRequest},
		"ask":    {first, "?ask-plugins=maybe", "true or false", http.StatusBadRequest},
		"too large": {strings.Repeat("# no end\n", 200000), "", "ask about fewer",
			http.StatusRequestEntityTooLarge},
	} {
		resp, err := http.Post(n.URL("/debug/fit"+tc.query), "application/yaml",
			strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		_, _ = text.ReadFrom(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tc.code || !strings.Contains(text.String(), tc.say) {
			t.Errorf("%s: %s %s, want %d with %q",
				name, resp.Status, text.String(), tc.code, tc.say)
		}
	}
	// The recorded state of an agent can be asked about without the agent.
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
	a := answers(t, first, "--count=max", "--config="+filepath.Join(n.Dir, "config.yaml"),
		"--topology-from=fixture:playground", "--devices=example.com/nic=4@0-3",
		"--state="+filepath.Join(n.Root, "numalet_state"))
	if a.Copies == 0 || strings.Contains(a.Text(), "CPUs "+row.CPUs) {
		t.Errorf("beside the state file: %s", a.Text())
	}
	if _, complaint, code := fits(t, first, server); code != 2 ||
		!strings.Contains(complaint, "set readOnlyPort") {
		t.Errorf("without an agent: %d %q", code, complaint)
	}
}

// Without an agent, the flags give the machine, the configuration and the devices.
func TestFitWithoutAnAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := []string{"--topology-from=fixture:epyc-nps4", "--cpu-manager-policy=static",
		"--reserved-cpus=0", "--topology-manager-policy=single-numa-node"}
	pod := limited("app", "cpu: 4, memory: 1Gi, example.com/gpu: 1")
	with := func(args ...string) []string { return append(args, node...) }

	out, complaint, code := fits(t, pod, with("--devices=example.com/gpu=8@0-3")...)
	for _, part := range []string{
		"Pod default/app: would be admitted", "4 exclusive CPUs (gets ", "Where it would be",
		"main: all on NUMA node 0",
	} {
		if code != 0 || complaint != "" || !strings.Contains(out, part) {
			t.Errorf("code %d, %q, lacks %q:\n%s", code, complaint, part, out)
		}
	}
	out, _, code = fits(t, pod, with("--devices=example.com/gpu=8@0-3", "--count=max")...)
	if code != 0 ||
		!strings.HasPrefix(out, "8 copies fit.\n") || !strings.Contains(out, "Why not one more") ||
		!strings.Contains(out, "1 asked for, none is free") {
		t.Errorf("how many: code %d\n%s", code, out)
	}
	// Pods are placed in order, each beside the ones before it.
	large := limited("large", "cpu: 20, memory: 1Gi")
	a := answers(t, strings.Repeat(large+"\n---\n", 5)+pod, with("--devices=example.com/gpu=1")...)
	var outcomes []string
	for _, p := range a.Pods {
		outcomes = append(outcomes, p.Record.Outcome)
	}
	if got := strings.Join(outcomes, " "); got != "Admit Admit Admit Admit Reject Admit" || a.Fits {
		t.Errorf("five large pods and a small one: %s", got)
	}
	if out, _, code = fits(t, pod, node...); code != 1 || !strings.Contains(out, "would wait") ||
		!strings.Contains(out, "Warning: no agent was asked") {
		t.Errorf("devices that nobody named: code %d\n%s", code, out)
	}

	devices := filepath.Join(dir, "devices.yaml")
	if err := os.WriteFile(devices, []byte("example.com/gpu:\n- {id: a, nodes: \"3\"}\n"+
		"- {id: b, nodes: \"0\", unhealthy: true}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	a = answers(t, pod, with("--devices="+devices)...)
	if got := a.Pods[0]; len(got.Containers) != 1 || got.Containers[0].NUMANodes != "3" {
		t.Errorf("the healthy device is on node 3: %+v", got.Containers)
	}
	state := filepath.Join(dir, "numalet_state")
	if err := os.WriteFile(state, []byte("not a state"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args []string
		say  string
	}{
		{[]string{"--devices=example.com/gpu=1@9"}, "on NUMA node 9"},
		{[]string{"--devices=gpu=1"}, "not the name of a device resource"},
		{[]string{"--devices=" + dir + "/none.yaml"}, "want a file, or RESOURCE=N"},
		{[]string{"--state=" + state}, "corrupt state file"},
		{[]string{"--count=many"}, "--count"},
		{[]string{"--output=xml"}, "use text or json"},
		{[]string{"--ask-plugins"}, "with --server or --node only"},
		{[]string{"--server=http://127.0.0.1:1"}, "the agent that is asked has its own"},
		{[]string{"--no-such-flag"}, "unknown flag"},
	} {
		out, complaint, code := fits(t, pod, with(tc.args...)...)
		if code != 2 || out != "" || !strings.Contains(complaint, tc.say) ||
			strings.Count(complaint, "\n") != 1 {
			t.Errorf("%v: code %d, %q, %q; want one line with %q",
				tc.args, code, out, complaint, tc.say)
		}
	}
	if raw, err := os.ReadFile(state); err != nil || string(raw) != "not a state" {
		t.Errorf("the state file was touched: %q, %v", raw, err)
	}
}
