package cluster_test

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/test/scratch"
)

// nobody is a user without rights on the machine.
const nobody = 65534

// TestPlaygroundOfACluster: a newcomer starts a cluster, without root on the simulated runtime and
// with it on containerd. The output says how to use kubectl, and a Deployment, a Job and a
// DaemonSet run on the node. A pod grows as README says. When the playground ends nothing is left.
func TestPlaygroundOfACluster(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("to be somebody else is root's")
	}
	for name, test := range map[string]struct {
		user uint32
		args []string
		gpus string
	}{
		"simulated":  {user: nobody},
		"GPUs":       {user: nobody, args: []string{"--gpu=dgxh100"}, gpus: "nvidia.com/gpu"},
		"containerd": {args: []string{"--runtime=containerd", "--tools=" + containerdrig.Binaries(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			testPlayground(t, test.user, cmp.Or(test.gpus, "example.com/gpu"), test.args)
		})
	}
}

func testPlayground(t *testing.T, user uint32, gpus string, args []string) {
	if user == 0 {
		containerdrig.Alone(t)
	}
	dir, temporary := scratch.Dir(t), scratch.Dir(t) // paths of sockets are short
	programs := filepath.Join(dir, "bin")
	linkPrograms(t, programs)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(temporary, int(user), int(user)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(programs, "numalet"), append([]string{
		"playground", "--cluster=" + programs}, args...)...)
	cmd.Dir = temporary
	cmd.Env = []string{"TMPDIR=" + temporary, "HOME=" + temporary, "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: syscall.SIGTERM, Credential: &syscall.Credential{Uid: user, Gid: user},
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	said := &strings.Builder{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM) }() // it has usually ended
	lines := bufio.NewScanner(out)
	kubeconfig := kubeconfigOf(t, lines, said)
	go func() { _, _ = io.Copy(io.Discard, out) }() // it prints more
	env := []string{"KUBECONFIG=" + kubeconfig, "HOME=" + dir, "PATH=" + programs + ":" + os.Getenv("PATH")}
	kubectl := func(args ...string) (string, error) {
		cmd := exec.Command(filepath.Join(programs, "kubectl"), args...)
		cmd.Env = env
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	awaitWorkloads(t, gpus, kubectl)
	if user == nobody {
		lookInside(t, kubectl)
	}
	if user == nobody { // the example is for the machine with many CPUs
		resizeAsReadme(t, dir, env)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || said.Len() > 0 {
		t.Errorf("it ended with %v: %s", err, said)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("%v, left are %v", err, left)
	}
	if alive := processesOf(t, programs); len(alive) > 0 {
		t.Errorf("processes are left: %q", alive)
	}
}

// awaitWorkloads waits until the examples run, and checks what they were given.
func awaitWorkloads(t *testing.T, gpus string, kubectl func(...string) (string, error)) {
	t.Helper()
	harness.Eventually(t, "the workloads run on the node", func() error {
		text, err := kubectl("get", "pods", "--output=jsonpath={range .items[*]}"+
			`{.metadata.ownerReferences[0].kind} {.spec.nodeName} {.status.phase}{"\n"}{end}`)
		if err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
		got := slices.Sorted(strings.Lines(text))
		want := []string{"DaemonSet numalet Running\n", "Job numalet Succeeded\n",
			"Job numalet Succeeded\n", "Job numalet Succeeded\n", "Job numalet Succeeded\n",
			"ReplicaSet numalet Running\n", "ReplicaSet numalet Running\n"}
		if !slices.Equal(got, want) {
			return fmt.Errorf("there are %q", got)
		}
		return nil
	})
	text, err := kubectl("get", "--raw", "/api/v1/nodes/numalet/proxy/placements")
	if err != nil || strings.Count(text, strconv.Quote(gpus)) < 2 {
		t.Errorf("%v: the node tells of placements %s", err, text)
	}
}

// lookInside uses what kubectl has for running pods: exec in a simulated container, and top.
func lookInside(t *testing.T, kubectl func(...string) (string, error)) {
	t.Helper()
	text, err := kubectl("exec", "deployment/inference", "--", "env")
	if err != nil || !strings.Contains(text, "KUBERNETES_SERVICE_HOST=") {
		t.Errorf("env in a container: %v: %s", err, text)
	}
	text, err = kubectl("exec", "deployment/inference", "--", "cat",
		"/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	if err != nil || text != "default" {
		t.Errorf("cat of a token's volume: %v: %s", err, text)
	}
	if text, err = kubectl("exec", "deployment/inference", "--", "nvidia-smi"); err == nil ||
		!strings.Contains(text, "this container is simulated") {
		t.Errorf("a program in a container: %v: %s", err, text)
	}
	harness.Eventually(t, "kubectl top node has figures", func() error {
		text, err := kubectl("top", "node", "--no-headers")
		if err != nil || !strings.HasPrefix(text, "numalet ") {
			return fmt.Errorf("%v: %s", err, text)
		}
		return nil
	})
}

// linkPrograms puts the agent and the servers where everybody may start them.
func linkPrograms(t *testing.T, dir string) {
	t.Helper()
	programs, err := filepath.Glob(filepath.Join(rig.Binaries(t), "*"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	harness.Programs(t, dir)
	for _, from := range programs {
		harness.CopyProgram(t, from, filepath.Join(dir, filepath.Base(from)))
	}
}

// kubeconfigOf returns the KUBECONFIG that the playground prints.
func kubeconfigOf(t *testing.T, lines *bufio.Scanner, said fmt.Stringer) string {
	t.Helper()
	export := regexp.MustCompile(`export KUBECONFIG=(\S+); alias kubectl=`)
	var all []string
	for lines.Scan() {
		if match := export.FindStringSubmatch(lines.Text()); match != nil {
			return match[1]
		}
		all = append(all, lines.Text())
	}
	t.Fatalf("it does not say how to use kubectl: %q %s", all, said)
	return ""
}

// processesOf returns the command lines of the running programs below dir.
func processesOf(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := fs.Glob(os.DirFS("/proc"), "[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range entries {
		text, err := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		if err == nil && strings.HasPrefix(string(text), dir) {
			out = append(out, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return out
}
