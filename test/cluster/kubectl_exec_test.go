package cluster_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// shellPod has containers that write to both streams, that restart, and that read a terminal;
// another pod has one that writes much. The first and the last wait for the file go.
// The one that is typed to answers after a moment: containerd passes the input of an attach on before it
// has its output, and loses an answer that comes sooner.
const shellPod = `
apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  volumes: [{name: state, emptyDir: {}}]
  containers:
  - name: main
    image: IMAGE
    volumeMounts: [{name: state, mountPath: /state}]
    command: [sh, -c, "for i in 1 2 3; do echo out $i; sleep 0.1; echo err $i >&2; sleep 0.1;
      done; until [ -e /state/go ]; do sleep 0.1; done; sleep 1.1; echo late;
      exec nc -ll -p 8080 -e cat"]
  - name: twice
    image: IMAGE
    volumeMounts: [{name: state, mountPath: /state}]
    command: [sh, -c, "if mkdir /state/twice 2>/dev/null; then echo first; exit 3; fi;
      echo second; exec sleep 1000000"]
  - name: typed
    image: IMAGE
    command: [sh, -c, "while read line; do sleep 1; echo $line; done"]
    stdin: true
---
apiVersion: v1
kind: Pod
metadata: {name: busy}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: IMAGE
    command: [sh, -c, "until [ -e /tmp/go ]; do sleep 0.1; done; i=0; while [ $i -lt 3000 ]; do
      echo busy $i; i=$((i+1)); usleep 1000; done; echo end; exec sleep 1000000"]
`

// busyLines is the number of lines that the pod busy writes before it ends.
const busyLines = 3000

// testShell runs users' kubectl commands on the pod shell, and returns those outputs that must be
// the same for every agent.
func testShell(t *testing.T, c rig.Cluster, n rig.Node, exact bool) []string {
	c.Apply(strings.ReplaceAll(shellPod, "IMAGE", containerdrig.ShellImage))
	c.MustRun("wait", "--for=condition=Ready", "pod/shell", "pod/busy", "--timeout=1m")
	eventually(t, c, "first", "logs", "shell", "-c", "twice", "--previous")
	testFollow(t, c, n, exact)
	c.MustRun("exec", "shell", "-c", "main", "--", "touch", "/state/go")
	eventually(t, c, "late", "logs", "shell", "-c", "main", "--tail=1")
	testAttach(t, c)
	testCopy(t, c)
	testTerminal(t, c)
	testForward(t, c)
	testSPDY(t, c, n)
	out := sameEverywhere(t, c, n)
	c.MustRun("delete", "pod", "shell", "busy", "--timeout=1m")
	return out
}

// testFollow follows a log that is rotated meanwhile. The stock kubelet sometimes loses a line
// then, and everything after it.
func testFollow(t *testing.T, c rig.Cluster, n rig.Node, exact bool) {
	t.Helper()
	if !exact {
		c.MustRun("exec", "busy", "--", "touch", "/tmp/go")
		eventually(t, c, "end", "logs", "busy", "--tail=1")
		return
	}
	busy := talk(t, c, "logs", "-f", "busy")
	c.MustRun("exec", "busy", "--", "touch", "/tmp/go")
	for i := range busyLines {
		busy.hear(fmt.Sprintf("busy %d", i))
	}
	busy.hear("end")
	rotated, err := filepath.Glob(filepath.Join(n.Dir, "logs", "*_busy_*", "main", "0.log.*"))
	if err != nil || len(rotated) == 0 {
		t.Errorf("the log was not rotated meanwhile: %v, %v", rotated, err)
	}
}

// sameEverywhere returns the outputs of commands, without what differs between runs.
func sameEverywhere(t *testing.T, c rig.Cluster, n rig.Node) (out []string) {
	t.Helper()
	late := strings.Fields(c.MustRun("logs", "shell", "-c", "main", "--tail=1", "--timestamps"))[0]
	proxy := "/api/v1/nodes/" + n.Name + "/proxy"
	logs := proxy + "/containerLogs/" + c.Namespace
	big := strings.Repeat("0123456789abcdef", 1<<16)
	for _, tc := range []struct{ in, args string }{
		{"", "logs shell"},
		{"", "logs shell -c main --tail=2"},
		{"", "logs shell -c main --tail=0"},
		{"", "logs shell -c main --tail=2 --timestamps"},
		{"", "logs shell -c main --limit-bytes=10"},
		{"", "logs shell -c main --limit-bytes=10 --tail=1"},
		{"", "logs shell -c main --since=1h"},
		{"", "logs shell -c main --since-time=" + late},
		{"", "logs shell -c twice"},
		{"", "logs shell -c twice --previous"},
		{"", "logs shell -c twice --previous --follow"},
		{"", "logs shell -c main --previous"},
		{"", "logs shell -c none"},
		{"", "exec shell -c main -- sh -c exit"},
		{"", "exec shell -c main -- sh -c echo$IFS$9out;echo$IFS$9err>&2;exit$IFS$((7))"},
		{"", "exec shell -c main -- /none"},
		{"", "exec shell -c none -- true"},
		{"", "exec shell -- hostname"},
		{"", "exec shell -c twice -- cat /proc/1/cmdline"},
		{"a\nb\n", "exec -i shell -c main -- cat"},
		{big, "exec -i shell -c main -- md5sum"},
		{"", "exec shell -c main -- head -c 1000000 /dev/zero"},
		{"", "get --raw " + proxy + "/healthz"},
		{"", "get --raw " + proxy + "/healthz/ping"},
		{"", "get --raw " + proxy + "/healthz/syncloop"},
		{"", "get --raw " + logs + "/shell/twice"},
		{"", "get --raw " + logs + "/shell/main?tailLines=1"},
		{"", "get --raw " + logs + "/shell/main?tailLines=x"},
		{"", "get --raw " + logs + "/shell/main?limitBytes=0"},
		{"", "get --raw " + logs + "/shell/main?sinceSeconds=1&sinceTime=" + late},
		{"", "get --raw " + logs + "/shell/none"},
		{"", "get --raw " + logs + "/none/main"},
		{"", "get --raw " + proxy + "/none"},
		{"", "create --raw " + proxy + "/run/" + c.Namespace + "/shell/main?cmd=hostname -f /dev/null"},
		{"", "create --raw " + proxy + "/run/" + c.Namespace + "/none/main?cmd=x -f /dev/null"},
		{"", "create --raw " + proxy + "/pods -f /dev/null"},
	} {
		text, err := c.RunWith(tc.in, strings.Fields(tc.args)...)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			text += fmt.Sprintf("\nexit %d: %v", exit.ExitCode(), err)
		}
		said := strings.NewReplacer(c.Namespace, "NAMESPACE", n.Name, "NODE", n.Dir, "DIR",
			late, "LATE").Replace(fmt.Sprintf("kubectl %s: %s", tc.args, text))
		out = append(out, ofOneRun.ReplaceAllString(said, "ONE"))
	}
	all := c.MustRun("logs", "shell", "--all-containers", "--prefix", "--tail=1")
	return append(out, slices.Sorted(strings.Lines(all))...) // kubectl prints them in any order
}

// ofOneRun matches times and the runtime's ids.
var ofOneRun = regexp.MustCompile(`[0-9a-f]{64}|` +
	`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|[+-]\d\d:\d\d)`)

// testAttach types a line to a container, and reads its answer.
func testAttach(t *testing.T, c rig.Cluster) {
	t.Helper()
	typed := talk(t, c, "attach", "-i", "shell", "-c", "typed")
	typed.say("hello")
	typed.hear("hello")
}

// testCopy copies a folder into a container and out of it again.
func testCopy(t *testing.T, c rig.Cluster) {
	t.Helper()
	from, to := filepath.Join(t.TempDir(), "from"), filepath.Join(t.TempDir(), "to")
	text := randomBytes(3 << 20)
	for name, content := range map[string][]byte{"a/big": text, "empty": nil, "b c": []byte("x")} {
		file := filepath.Join(from, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	c.MustRun("cp", "-c", "main", from, "shell:/state/copied")
	c.MustRun("cp", "-c", "main", "shell:/state/copied", to)
	if out, err := exec.Command("diff", "-r", from, to).CombinedOutput(); err != nil {
		t.Errorf("what came back differs: %v\n%s", err, out)
	}
}

// sizes are the sizes of a terminal, one after the other.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	if size, more := <-s; more {
		return &size
	}
	return nil
}

// untilSizes waits until the terminal has one size, and then another.
const untilSizes = `
until [ "$(stty size 2>/dev/null)" = '30 100' ]; do usleep 10000; done; echo first
until [ "$(stty size 2>/dev/null)" = '50 120' ]; do usleep 10000; done; echo second; exit 5`

// testTerminal checks that a command on a terminal learns the terminal's size, and later its new
// one.
func testTerminal(t *testing.T, c rig.Cluster) {
	t.Helper()
	config, err := c.Admin()
	if err != nil {
		t.Fatal(err)
	}
	at := c.Client.CoreV1().RESTClient().Post().Resource("pods").Namespace(c.Namespace).
		Name("shell").SubResource("exec").Param("container", "main").Param("stdin", "true").
		Param("stdout", "true").Param("tty", "true").Param("command", "sh").
		Param("command", "-c").Param("command", untilSizes).URL()
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", at.String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	size := make(sizes, 2)
	defer close(size)
	size <- remotecommand.TerminalSize{Width: 100, Height: 30}
	in, _ := io.Pipe() // nothing is typed
	var out bytes.Buffer
	resize := writer(func(p []byte) (int, error) {
		if strings.HasPrefix(string(p), "first") {
			size <- remotecommand.TerminalSize{Width: 120, Height: 50}
		}
		return out.Write(p)
	})
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{
		Stdin: in, Stdout: resize, Tty: true, TerminalSizeQueue: size,
	})
	if err == nil || !strings.Contains(err.Error(), "exit code 5") ||
		out.String() != "first\r\nsecond\r\n" {
		t.Errorf("on a terminal: %v, %q", err, out.String())
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// testForward sends much data through a forwarded port, which returns it all.
func testForward(t *testing.T, c rig.Cluster) {
	t.Helper()
	port := harness.FreePort(t)
	says := talk(t, c, "port-forward", "pod/shell", fmt.Sprintf("%d:8080", port))
	says.hear(fmt.Sprintf("Forwarding from 127.0.0.1:%d -> 8080", port))
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	text := randomBytes(16 << 20)
	sent := make(chan error, 1)
	go func() {
		_, err := conn.Write(text)
		sent <- err
	}()
	sum := sha256.New()
	n, err := io.CopyN(sum, conn, int64(len(text)))
	if want := sha256.Sum256(text); err != nil || !bytes.Equal(sum.Sum(nil), want[:]) {
		t.Errorf("%d of %d bytes came back, %v, or others", n, len(text), err)
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// testSPDY repeats over SPDY, as older kubectls do, what kubectl does over WebSocket by default.
func testSPDY(t *testing.T, c rig.Cluster, n rig.Node) {
	t.Helper()
	counted := func() (lines []string) {
		all := c.MustRun("get", "--raw", "/api/v1/nodes/"+n.Name+"/proxy/metrics")
		for line := range strings.Lines(all) {
			if strings.HasPrefix(line, "kubelet_websocket_streaming_requests_total{") {
				lines = append(lines, line)
			}
		}
		return lines
	}
	before := counted()
	if len(before) == 0 {
		t.Error("nothing went by WebSocket yet")
	}
	old := c.With("KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false", "KUBECTL_PORT_FORWARD_WEBSOCKETS=false")
	testAttach(t, old)
	testForward(t, old)
	out, err := old.RunWith("typed", "exec", "-i", "shell", "-c", "main", "--", "sh", "-c",
		"cat; echo wrong >&2; exit 7")
	if out != "typed" || err == nil || !strings.Contains(err.Error(), "exit status 7") ||
		!strings.Contains(err.Error(), "wrong") {
		t.Errorf("exec over SPDY: %q, %v", out, err)
	}
	if after := counted(); !slices.Equal(after, before) {
		t.Errorf("over SPDY the node counts WebSockets: %q, before %q", after, before)
	}
}

func randomBytes(n int) []byte {
	out := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(out) // it returns no error
	return out
}
