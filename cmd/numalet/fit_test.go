package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/numalet/numalet/agent/placement/fit"
	"github.com/numalet/numalet/cmd/internal/cli"
)

const onePodOfTwoCPUs = `apiVersion: v1
kind: Pod
metadata: {name: app}
spec:
  containers:
  - name: main
    image: app
    resources: {limits: {cpu: "2", memory: 1Gi, example.com/gpu: "1"}}
`

// run runs numalet with these arguments and returns what it prints, and its error.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand(func(words []string) error { return fmt.Errorf("lab: %q", words) })
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// The example that needs no agent works as written.
func TestFitExample(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("pod.yaml", []byte(onePodOfTwoCPUs), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(newFitCommand().Example, "\\\n", " ")
	ran := 0
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "--topology-from") {
			continue
		}
		ran++
		out, err := run(t, strings.Fields(line)[1:]...)
		if err != nil || !strings.Contains(out, "Pod default/app: would be admitted") ||
			!strings.Contains(out, "main: all on NUMA node 0") {
			t.Errorf("%s\n%v\n%s", line, err, out)
		}
	}
	if ran != 1 {
		t.Errorf("%d examples ran", ran)
	}
}

// What an agent says of a pod that it runs is printed, and a resize that is not done is a no.
func TestFitOfAPodThatRuns(t *testing.T) {
	pod := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(pod, []byte(onePodOfTwoCPUs), 0o600); err != nil {
		t.Fatal(err)
	}
	for outcome, code := range map[string]int{"Done": 0, "Deferred": exitNo} {
		said := fit.Pod{Copy: 1, Resize: &fit.Resize{Outcome: outcome},
			Text: "Pod default/app runs here: its resize would be " + outcome + "\n"}
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_ = json.NewEncoder(w).Encode(fit.Answer{Fits: code == 0, Asked: 1, Pods: []fit.Pod{said}})
		}))
		t.Cleanup(s.Close)
		out, err := run(t, "fit", "-f", pod, "--server", s.URL)
		end := cli.Exit{}
		if errors.As(err, &end); out != said.Text || end.Code != code {
			t.Errorf("%s: exit code %d, %v, %q", outcome, end.Code, err, out)
		}
		if out, _ = run(t, "fit", "-f", pod, "--server", s.URL, "-o", "json"); !strings.Contains(out, `"outcome": "`+outcome) {
			t.Errorf("%s: %s", outcome, out)
		}
	}
}

// Each mistake gives one line that says what is wrong and what would be right.
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pod, none := file("pod.yaml", onePodOfTwoCPUs), filepath.Join(dir, "none")
	offline := []string{"fit", "-f", pod, "--topology-from", "fixture:laptop"}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{"fit"}, []string{"-f"}},
		{[]string{"fit", "-f", none}, []string{none, "-f wants a file"}},
		{[]string{"fit", "-f", file("empty", "")}, []string{dir + "/empty is empty"}},
		{[]string{"fit", "-f", pod, "-f", file("torn", "kind: Pod\n  x: [\n")},
			[]string{dir + "/torn is not YAML or JSON: line 2"}},
		{[]string{"fit", "-f", file("svc", "apiVersion: v1\nkind: Service\n")},
			[]string{"Service", "Deployment"}},
		{append(offline, "--devices", "example.com/gpu=2@x"), []string{"2@x", "such as 0-3"}},
		{append(offline, "--devices", "example.com/gpu=2@7"), []string{"node 7", "has node"}},
		{append(offline, "--state", pod), []string{pod, "numalet_state"}},
		{append(offline, "--cpu-manager-policy", "static"), []string{"--reserved-cpus"}},
		{append(offline, "--memory-manager-policy", "Static"),
			[]string{"reservedMemory", "numaNode: 0"}},
		{[]string{"fit", "-f", pod, "--server", "ftp://node1"},
			[]string{"ftp://node1", "--server", "127.0.0.1:10255"}},
		{[]string{"fit", "-f", pod, "--servr", "node1"}, []string{"did you mean --server?"}},
		{[]string{"--pod-manifets-path", dir}, []string{"did you mean --pod-manifest-path?"}},
		{[]string{"topology", "show", "--xyzzy"}, []string{"numalet topology show --help"}},
		{[]string{"topology", "show", "-o", "xml"}, []string{"xml", "use text, json or yaml"}},
		{[]string{"explain", "a", "b"}, []string{"2 pods are named", "name one", "numalet pods"}},
		{[]string{"explain", "shop/a/main", "-n", "bank"}, []string{"shop/a/main", "--namespace bank"}},
		{[]string{"explain", "a", "--server", "127.0.0.1:1"},
			[]string{"http://127.0.0.1:1", "readOnlyPort"}},
		{[]string{"topology", "shwo"}, []string{`"shwo"`, "numalet topology --help"}},
		{[]string{"podresources", "--socket", none}, []string{none, "--socket"}},
	} {
		out, err := run(t, tt.args...)
		if err == nil || out != "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v\n%s", tt.args, err, out)
			continue
		}
		for _, part := range tt.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%v: the error lacks %q: %v", tt.args, part, err)
			}
		}
		if end := (cli.Exit{}); tt.args[0] == "fit" &&
			(!errors.As(err, &end) || end.Code != exitError) {
			t.Errorf("%v: exit code %d", tt.args, end.Code)
		}
	}
}
