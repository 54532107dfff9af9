package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/test/harness"
)

var (
	// resizeExample is README's example of a resize, resizeEdit what a user changes in the editor, and
	// resizeEdited what kubectl says then.
	resizeExample = regexp.MustCompile("(?s)```\n([^`]*--subresource resize.*?)```")
	resizeEdit    = regexp.MustCompile(`# (cpu: \S+) becomes (cpu: \S+?),`)
	resizeEdited  = regexp.MustCompile(`(?m)^pod/(\S+) edited$`)
)

// resizeAsReadme runs the commands of README's example in dir, with a script as the editor. The pod comes to
// have as many exclusive CPUs as README shows, and its container is not started anew.
func resizeAsReadme(t *testing.T, dir string, env []string) {
	t.Helper()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	example := resizeExample.FindStringSubmatch(string(readme))
	if example == nil {
		t.Fatal("README has no example of a resize")
	}
	edit := resizeEdit.FindStringSubmatch(example[1])
	if edit == nil {
		t.Fatalf("it does not say what is edited: %s", example[1])
	}
	env = append(slices.Clone(env), fmt.Sprintf("EDITOR=sed -i 's/%s/%s/'", edit[1], edit[2]))
	run := func(lines ...string) (string, error) {
		cmd := exec.Command("sh", "-ec", strings.Join(lines, "\n"))
		cmd.Dir, cmd.Env = dir, env
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	var commands []string
	for line := range strings.Lines(example[1]) {
		if command, is := strings.CutPrefix(line, "$ "); is {
			commands = append(commands, command)
		}
	}
	last := len(commands) - 1
	said, err := run(commands[:last]...)
	edited := resizeEdited.FindStringSubmatch(said)
	if err != nil || edited == nil {
		t.Fatalf("%v: kubectl edit says %s", err, said)
	}
	pod := edited[1]
	want := cpusIn(example[1], "inference").Size()
	harness.Eventually(t, "the pod has more CPUs", func() error {
		text, err := run(commands[last])
		if err == nil && cpusIn(text, pod).Size() != want {
			err = fmt.Errorf("want %d CPUs", want)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		return nil
	})
	restarts, err := run("kubectl get pod " + pod + " -o jsonpath='{.status.containerStatuses[*].restartCount}'")
	if err != nil || restarts != "0" {
		t.Errorf("%v: its container was started anew %s times", err, restarts)
	}
}

// cpusIn returns the CPUs in the first row about such a pod of what podresources prints.
func cpusIn(text, pod string) cpuset.CPUSet {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 3 && strings.HasPrefix(fields[1], pod) {
			if cpus, err := cpuset.Parse(fields[3]); err == nil {
				return cpus
			}
		}
	}
	return cpuset.New()
}
