package test

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/cpumanager/checkpoint"
	devicecheckpoint "github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/test/harness"
)

// fileCalls lists the system calls that can change what is on disk.
const fileCalls = "openat,write,pwrite64,fsync,fdatasync,close,rename,renameat,renameat2,unlinkat"

// fileOp is one of these calls on one file, named as strace(1) names them.
type fileOp struct{ call, path string }

// assignment is a change of the assignments that a test brings about.
type assignment struct {
	name   string
	change func(*harness.Node)
	done   func(*harness.Node)
	// begins is set if the agent was restarted before the change, so that the commit rewrites the
	// state file.
	begins bool
}

var assignmentChanges = []assignment{
	{
		name:   "admission",
		change: func(n *harness.Node) { n.Pod("new", twoDevices("new")) },
		done:   func(n *harness.Node) { n.AwaitPhase("new-node", v1.PodRunning) },
	}, {
		name:   "admission after a restart",
		change: func(n *harness.Node) { n.Pod("new", twoDevices("new")) },
		done:   func(n *harness.Node) { n.AwaitPhase("new-node", v1.PodRunning) },
		begins: true,
	}, {
		name:   "release",
		change: func(n *harness.Node) { n.RemovePod("old") },
		done:   func(n *harness.Node) { n.AwaitGone("old-node") },
	},
}

func twoDevices(name string) string {
	return limited(name, "cpu: 4, memory: 1Gi, "+gpu+": 2")
}

// TestKilledInsideACommit kills the agent before each file operation of a commit and of the export
// after it: those on the state file, on the kubelet's files and on their folders. The disk then has
// the state before or after the change, and the next agent completes the change.
func TestKilledInsideACommit(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("strace"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%v; apt-get install strace", err)
		}
		t.Skipf("%v; apt-get install strace", err)
	}
	for _, change := range assignmentChanges {
		ops := fileOps(t, change)
		checkDurable(t, change, ops)
		for i, op := range ops {
			t.Run(fmt.Sprintf("%s/%02d %s %s", change.name, i, op.call, op.path),
				func(t *testing.T) {
					t.Parallel()
					killedBefore(t, change, op)
				})
		}
	}
}

// onePod returns a node that runs one pod with exclusive CPUs and devices.
func onePod(t *testing.T, change assignment) *harness.Node {
	n := harness.New(t)
	n.Start()
	n.Plugin(gpu, "--devices=8", "--nodes=0-3")
	n.Pod("old", twoDevices("old"))
	uid := string(n.AwaitPhase("old-node", v1.PodRunning).UID)
	n.Eventually("it is exported", func() error { // else a change might not alter the files
		for file := range exportDecoders() {
			raw, err := os.ReadFile(filepath.Join(n.Root, file))
			if err != nil || !strings.Contains(string(raw), uid) {
				return cmp.Or(err, fmt.Errorf("%s does not name it", file))
			}
		}
		return nil
	})
	if change.begins {
		n.Kill()
		n.Start()
	}
	n.Eventually("the plugin's list is remembered", func() error { // which also syncs the folder
		if text := n.Get("/plugins"); !strings.Contains(text, `"healthy": 8`) {
			return errors.New(text)
		}
		return nil
	})
	return n
}

// watchedFiles returns all files that the change writes, and their folders, relative to the root
// directory.
func watchedFiles() []string {
	var out []string
	for _, file := range []string{
		store.FileName, checkpoint.FileName,
		filepath.Join("device-plugins", devicecheckpoint.FileName),
	} {
		dir, base := filepath.Split(file)
		out = append(out, file, filepath.Join(dir, files.Temporary(base)))
	}
	return append(out, ".", "device-plugins")
}

// fileOps returns the operations that the change makes, in the order of their first occurrence.
func fileOps(t *testing.T, change assignment) []fileOp {
	t.Helper()
	n := onePod(t, change)
	log := filepath.Join(n.Dir, "calls")
	args := []string{"-y", "-o", log, "-e", "trace=" + fileCalls}
	for _, file := range watchedFiles() {
		args = append(args, "-P", filepath.Join(n.Root, file))
	}
	detach := attach(t, n, args...)
	change.change(n)
	change.done(n)
	var ops []fileOp
	n.Eventually("all files are renamed", func() error {
		raw, err := os.ReadFile(log)
		ops = parseCalls(string(raw), n.Root)
		for _, file := range watchedFiles() {
			rename := fileOp{"renameat", file}
			written := file == files.Temporary(store.FileName) && !change.begins
			if strings.HasSuffix(file, ".tmp") && !written && !slices.Contains(ops, rename) {
				return cmp.Or(err, fmt.Errorf("%s is not; there were %v", file, ops))
			}
		}
		return err
	})
	detach()
	return ops
}

// checkDurable checks that an admission syncs what it appends to the state file once, so that a
// power cut leaves the state before or after it. A new state file must be on disk before it
// replaces the old one, and the folder is synced afterwards. A release is not synced, and nothing
// else is.
func checkDurable(t *testing.T, change assignment, ops []fileOp) {
	t.Helper()
	next := files.Temporary(store.FileName)
	want := []fileOp{{"write", store.FileName}}
	switch {
	case change.begins:
		want = []fileOp{{"write", next}, {"fsync", next}, {"renameat", next}, {"fsync", "."}}
	case change.name == "admission":
		want = append(want, fileOp{"fsync", store.FileName})
	}
	syncs := func(ops []fileOp) (n int) {
		for _, op := range ops {
			if op.call == "fsync" || op.call == "fdatasync" {
				n++
			}
		}
		return n
	}
	if syncs(ops) != syncs(want) {
		t.Errorf("there were %v, want no syncs but those of %v", ops, want)
	}
	last := -1
	for _, op := range want {
		at := slices.Index(ops, op)
		if at <= last {
			t.Errorf("%s %s is operation %d, want one after %d; there were %v",
				op.call, op.path, at, last, ops)
		}
		last = at
	}
}

// attach attaches strace to the running agent, until detach is called or the test ends.
func attach(t *testing.T, n *harness.Node, args ...string) (detach func()) {
	t.Helper()
	cmd := exec.Command("strace", append(args, "-f", "-p", fmt.Sprint(n.PID()))...)
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	attached, ended := make(chan bool, 1), make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "attached") {
				select {
				case attached <- true:
				default:
				}
			}
		}
		_ = cmd.Wait() // how strace ends does not matter
	}()
	detach = func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended with the agent
		<-ended
	}
	t.Cleanup(detach)
	select {
	case <-attached:
	case <-ended:
		t.Fatal("strace could not be attached to the agent")
	}
	return detach
}

// A line is like one of
//
//	77 write(9</r/.x.tmp>, "..."..., 420) = 420
//	77 renameat(AT_FDCWD</>, "/r/.x.tmp", AT_FDCWD</>, "/r/x" <unfinished ...>
var (
	callLine = regexp.MustCompile(`^\d+ +(\w+)\((.*)`)
	callPath = regexp.MustCompile(`^(?:AT_FDCWD<[^>]*>, "([^"]*)"|\d+<([^>]*)>)`)
)

func parseCalls(log, root string) (out []fileOp) {
	for line := range strings.Lines(log) {
		call := callLine.FindStringSubmatch(line)
		if call == nil {
			continue
		}
		path := callPath.FindStringSubmatch(call[2])
		if path == nil {
			continue
		}
		file, err := filepath.Rel(root, cmp.Or(path[1], path[2]))
		if err != nil {
			continue
		}
		if op := (fileOp{call[1], file}); !slices.Contains(out, op) {
			out = append(out, op)
		}
	}
	return out
}

// killedBefore makes the change on an agent that is killed before the operation.
func killedBefore(t *testing.T, change assignment, op fileOp) {
	n := onePod(t, change)
	before := byName(assignedState(t, n))
	attach(t, n, "-o", filepath.Join(n.Dir, "calls"), "-P", filepath.Join(n.Root, op.path),
		"-e", "trace="+op.call, "-e", "inject="+op.call+":signal=SIGKILL")
	change.change(n)
	n.AwaitKilled()

	after := byName(assignedState(t, n)) // fails the test if the file is damaged
	kubeletFilesSound(t, n)
	if old, ok := after["old-node"]; ok {
		if diff := gocmp.Diff(fmt.Sprint(before["old-node"]), fmt.Sprint(old)); diff != "" {
			t.Errorf("the assignment of the pod that runs (-before +after):\n%s", diff)
		}
	} else if change.name != "release" {
		t.Errorf("the pod that runs is not in the state: %v", after)
	}
	fresh, committed := after["new-node"]
	if held := fresh.Containers["main"]; committed && (held.CPUs().Size() != 4 ||
		len(held.Devices()) != 1 || len(held.Devices()[0].IDs) != 2 || held.Devices()[0].Answer == nil) {
		t.Errorf("half an assignment: %+v", fresh)
	}

	n.Start()
	change.done(n)
	var final map[string]allocation.Pod
	n.Eventually("the change is in the state file", func() error {
		final = byName(assignedState(t, n))
		if _, held := final["old-node"]; held == (change.name == "release") {
			return fmt.Errorf("it has %v", final)
		}
		return nil
	})
	if committed && fmt.Sprint(final["new-node"]) != fmt.Sprint(fresh) {
		t.Errorf("it was committed as\n%+v and is\n%+v", fresh, final["new-node"])
	}
}

// kubeletFilesSound checks that a kubelet could read the files that were exported for it.
func kubeletFilesSound(t *testing.T, n *harness.Node) {
	t.Helper()
	for file, decode := range exportDecoders() {
		raw, err := os.ReadFile(filepath.Join(n.Root, file))
		if err == nil {
			err = decode(raw)
		}
		if err != nil {
			t.Errorf("what was exported: %v", err)
		}
	}
}

// exportDecoders maps the exported files to their decoders.
func exportDecoders() map[string]func([]byte) error {
	return map[string]func([]byte) error{
		checkpoint.FileName: func(raw []byte) error {
			_, err := checkpoint.Decode(raw)
			return err
		},
		filepath.Join("device-plugins", devicecheckpoint.FileName): func(raw []byte) error {
			_, _, err := devicecheckpoint.Decode(raw)
			return err
		},
	}
}

// byName returns the pods of a state by name.
func byName(s allocation.State) map[string]allocation.Pod {
	out := map[string]allocation.Pod{}
	for _, pod := range s.Pods {
		out[pod.Name] = pod
	}
	return out
}
