package test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/numalet/numalet/cmd/numalet-lab/rig"
	"github.com/numalet/numalet/test/harness"
)

// bench runs "numalet rig" and returns what it prints.
func bench(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	binary, err := harness.Lab()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, errors bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, append([]string{"rig"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &errors
	err = cmd.Run()
	return out.String(), errors.String(), err
}

func mustBench(t *testing.T, args ...string) string {
	t.Helper()
	out, errors, err := bench(t, args...)
	if err != nil {
		t.Fatalf("bench %q: %v\n%s", args, err, errors)
	}
	return out
}

// The same seed gives the same bytes, however many policies run at the same time. So does the trace
// that the run wrote.
func TestRigIsDeterministic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace.jsonl")
	args := []string{
		"--topology-from", "fixture:playground", "--no-timing", "-o", "json", "--wait", "1h",
		"--policies", rig.DefaultPolicies + "+container/pod+memory-none/memory-static",
	}
	drawn := append([]string{"--mix", "training", "--pods", "300", "--seed", "9"}, args...)
	first := mustBench(t, append(drawn, "--parallel", "1", "--write-trace", trace)...)
	if second := mustBench(t, append(drawn, "--parallel", "8")...); second != first {
		t.Error("with --parallel 8 the report is another one")
	}
	replayed := mustBench(t, append(args, "--trace", trace)...)
	var a, b rig.Report
	for text, into := range map[string]*rig.Report{first: &a, replayed: &b} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	if a.Policies[0].Pods.Arrived != 300 || len(a.Policies) != 16 {
		t.Errorf("%d policies, %+v", len(a.Policies), a.Policies[0].Pods)
	}
	if marshal(t, a.Policies) != marshal(t, b.Policies) {
		t.Error("the replayed trace gives another report")
	}
	other := mustBench(t, append(drawn[2:], "--mix", "training", "--seed", "10")...)
	if other == first {
		t.Error("another seed gives the same report")
	}
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The report's counts agree with the lists of pods and decisions, counted again line by line.
func TestRigReportsItsDecisions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trace, decisions := filepath.Join(dir, "trace.jsonl"), filepath.Join(dir, "decisions.jsonl")
	out := mustBench(t, "--topology-from", "fixture:eight-node", "--mix", "inference",
		"--pods", "800", "--load", "1.3", "--no-timing", "-o", "json",
		"--write-trace", trace, "--decisions", decisions)
	var report rig.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	templates := templatesOf(t, trace)
	type key struct{ policy, what string }
	counts := map[key]int{}
	for _, line := range lines(t, decisions) {
		var d struct {
			Policy, Decision, Reason, Of string
			Pod                          int
		}
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		counts[key{d.Policy, d.Decision}]++
		if d.Decision == rig.Admitted {
			counts[key{d.Policy, "kind " + templates[d.Pod-1]}]++
		}
		if d.Decision == rig.Rejected {
			counts[key{d.Policy, "because " + d.Reason + d.Of}]++
		}
	}
	for _, o := range report.Policies {
		is := map[string]int{rig.Admitted: o.Pods.Admitted, rig.Rejected: o.Pods.Rejected}
		for _, s := range o.Shapes {
			is["kind "+s.Name] = s.Admitted
		}
		for _, r := range o.Reasons {
			is["because "+r.Reason+r.Of] = r.Count
		}
		for what, n := range is {
			if want := counts[key{o.Policy, what}]; n != want {
				t.Errorf("%s: %s %d, counted again %d", o.Policy, what, n, want)
			}
		}
		if o.Pods.Admitted+o.Pods.Rejected != 800 || o.Pods.Admitted == 0 {
			t.Errorf("%s: %+v", o.Policy, o.Pods)
		}
		sum := 0
		for _, n := range o.Placement.Spread {
			sum += n
		}
		apart := o.Placement.PlacedContainers - o.Placement.AlignedContainers
		if sum != o.Placement.Placed || apart > 0 && o.Policy == "single-numa-node" {
			t.Errorf("%s: %+v", o.Policy, o.Placement)
		}
	}
}

func lines(t *testing.T, path string) (out [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scanner := bufio.NewScanner(f)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		out = append(out, bytes.Clone(scanner.Bytes()))
	}
	return out
}

// templatesOf returns the template of each pod of a trace.
func templatesOf(t *testing.T, trace string) (out []string) {
	t.Helper()
	for _, line := range lines(t, trace) {
		var l struct{ Arrive, Template string }
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		if l.Arrive != "" {
			out = append(out, l.Template)
		}
	}
	return out
}

// The HTML report loads nothing from elsewhere.
func TestRigPage(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "report.html")
	out := mustBench(t, "--topology-from", "fixture:epyc-nps4", "--mix", "small-and-large",
		"--pods", "300", "-o", "html", "--out", path)
	raw, err := os.ReadFile(path)
	if err != nil || out != "" {
		t.Fatalf("%v; stdout has %q", err, out)
	}
	markup := regexp.MustCompile(`(?s)<script[^>]*>.*?</script>`).ReplaceAllString(string(raw), "")
	asks := regexp.MustCompile(`(?i)(src|href)\s*=|url\(|@import|<link`)
	if hit := asks.FindString(markup); hit != "" {
		t.Errorf("the page asks for something: %s", hit)
	}
	for _, want := range []string{"4 placement policies on EPYC-like socket",
		"single-numa-node", "seed 1",
		"--mix small-and-large --pods 300", "<dt>Version</dt>"} {
		if !strings.Contains(markup, want) {
			t.Errorf("no %q in the page", want)
		}
	}
}

// The machine may be a file, with invented devices, or this host.
func TestRigMachines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "m.yaml")
	machine := "name: tiny\nnodes:\n- {id: 0, cpus: 0-3, memory: 8Gi}\n- {id: 1, cpus: 4-7, " +
		"memory: 8Gi}\n"
	if err := os.WriteFile(path, []byte(machine), 0o600); err != nil {
		t.Fatal(err)
	}
	out := mustBench(t, "--topology-from", path, "--devices", "gpu=1", "--devices", "nic=1@1",
		"--mix", "inference", "--pods", "50")
	for _, want := range []string{"tiny", "2 example.com/gpu, 1 example.com/nic", "50 pods",
		"P99"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	out = mustBench(t, "--pods", "20", "--policies", "best-effort")
	if !strings.Contains(out, "this host") {
		t.Errorf("not this host:\n%s", out)
	}
}

// Two configurations of a node are compared, beside a set of words, and the page says how to get
// the same report again.
func TestRigConfigurations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"today.yaml": "cpuManagerPolicy: static\nreservedSystemCPUs: \"0,32\"\n",
		"10.conf":    "topologyManagerPolicy: restricted\ntopologyManagerScope: pod\nmaxPods: 3\n",
	} {
		text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" + text
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{
		"--topology-from", "fixture:playground", "--mix", "training", "--pods", "300",
		"--no-timing", "--config", "today=" + dir + "/today.yaml", "--config",
		"new=" + dir + "/today.yaml", "--config-dir", "new=" + dir,
	}
	var report rig.Report
	err := json.Unmarshal([]byte(mustBench(t, append(args, "-o", "json")...)), &report)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Policies) != 2 {
		t.Fatalf("%d policies", len(report.Policies))
	}
	today, changed := report.Policies[0], report.Policies[1]
	if today.Policy != "today" || today.Settings.TopologyManager != "none" || today.Pods.Most <= 3 {
		t.Errorf("%+v, %+v", today.Settings, today.Pods)
	}
	if changed.Settings.Scope != "pod" || changed.Pods.Most != 3 ||
		changed.Placement.AlignedShare <= today.Placement.AlignedShare {
		t.Errorf("%+v, %+v, %+v", changed.Settings, changed.Pods, changed.Placement)
	}
	// The set of words that corresponds to today's configuration decides the same.
	words := append(args, "--policies", "none", "--max-pods", "110", "-o", "json")
	text := mustBench(t, words...)
	var three rig.Report
	if err := json.Unmarshal([]byte(text), &three); err != nil {
		t.Fatal(err)
	}
	same := three.Policies[0].Placement
	if len(three.Policies) != 3 || marshal(t, same) != marshal(t, today.Placement) {
		t.Errorf("%d policies; %+v, not %+v", len(three.Policies), same, today.Placement)
	}
	again := append(strings.Fields(three.Command)[2:], "--no-timing", "-o", "json")
	if mustBench(t, again...) != text {
		t.Errorf("%s gives another report", three.Command)
	}
}

// Ctrl-C ends a run with what was measured until then.
func TestRigInterrupted(t *testing.T) {
	t.Parallel()
	binary, err := harness.Lab()
	if err != nil {
		t.Fatal(err)
	}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var out, errors bytes.Buffer
	cmd := exec.CommandContext(ctx, binary, "rig", "--topology-from",
		"fixture:playground",
		"--pods", "1000000", "--parallel", "1", "--write-trace", trace, "-o", "json")
	cmd.Stdout, cmd.Stderr = &out, &errors
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// The trace is complete when the first policy begins. From then on the policies use the CPU time.
	began := -1
	harness.Eventually(t, "pods decided on", func() error {
		ticks, err := cpuTicks(cmd.Process.Pid)
		if err != nil {
			return err
		}
		if _, err := os.Stat(trace); err != nil {
			return err
		}
		if began < 0 {
			began = ticks
		}
		if ticks < began+50 {
			return fmt.Errorf("%d ticks of CPU time since the trace", ticks-began)
		}
		return nil
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	var report rig.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v\n%s%s", err, &out, &errors)
	}
	if cmd.ProcessState.ExitCode() != 130 || !strings.Contains(errors.String(), "interrupted: ") {
		t.Errorf("%v, stderr %s", err, &errors)
	}
	if n := report.Policies[0].Pods.Arrived; !report.Interrupted || n < 1 || n >= 1000000 {
		t.Errorf("interrupted %v, %d pods", report.Interrupted, n)
	}
}

// cpuTicks returns the user CPU time of a process in ticks (proc_pid_stat(5)).
func cpuTicks(pid int) (int, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	return strconv.Atoi(fields[11]) // utime
}

// Errors are one line that names the next step, and leave no file behind.
func TestRigErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trace := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(trace, []byte("{\"at\": 1, \"arrive\": \"a\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(dir, "report")
	for want, args := range map[string][]string{
		"there are: cpuless-memory":            {"--topology-from", "fixture:none"},
		"give a file, or one that is built in": {"--mix", "none"},
		"bad.jsonl: line 1: a: it has no":      {"--trace", trace},
		"make one with --write-trace":          {"--trace", filepath.Join(dir, "none")},
		"--seed and --trace":                   {"--trace", trace, "--seed", "3"},
		"invent some with --devices gpu=2": {"--topology-from", "fixture:epyc-nps4", "--mix",
			"training"},
		`"strict" is not a word of a policy`: {"--policies", "strict"},
		"use text, json or html":             {"-o", "yaml"},
		"--pods 0: give a number from 1":     {"--pods", "0"},
		"write RESOURCE=COUNT":               {"--devices", "gpu"},
		"cannot be used with distribute-cpus-across-cores": {
			"--policies", "full-pcpus-only+distribute-cpus-across-cores"},
		"policy a: read config file: open " + dir + "/none": {"--config", "a=" + dir + "/none"},
		`has no "70"; online are "0-7"`: {"--topology-from", "fixture:laptop",
			"--reserved-cpus", "70"},
		"write report: open " + dir + "/no/report": {"--pods", "5", "--out", dir + "/no/report"},
	} {
		if args[0] != "--topology-from" {
			args = append(args, "--topology-from", "fixture:playground")
		}
		if args[0] != "--pods" || args[1] == "0" {
			args = append(args, "--out", report)
		}
		out, errors, err := bench(t, args...)
		if err == nil || !strings.Contains(errors, want) || strings.Count(errors, "\n") != 1 ||
			out != "" {
			t.Errorf("%q: %v\n%s%s\nwant %s", args, err, out, errors, want)
		}
		if _, err := os.Stat(report); err == nil {
			t.Errorf("%q left a report", args)
		}
	}
}
