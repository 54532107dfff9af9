package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/test/harness"
)

// documented says how to run each command of the documentation as a test.
var documented = map[string]struct {
	// up is an output of the command, or a file that it makes, that shows that the command works. The
	// command is then stopped at the end of its block. If up is "", the command ends by itself.
	up string
	// add holds further arguments that shorten the run or say where the agent is.
	add []string
	// cluster is set if the command needs an API server. Such commands are not run here, but the tests
	// with an API server run similar ones.
	cluster bool
}{
	"numalet --config /var/lib/kubelet/config.yaml --root-dir /var/lib/kubelet": {up: `"Ready"`},

	"numalet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf " +
		"--kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml " +
		"$KUBELET_KUBEADM_ARGS": {cluster: true},

	"numalet preflight --config /var/lib/kubelet/config.yaml --root-dir /var/lib/kubelet": {},

	"bin/numalet podresources --node numalet":                             {cluster: true},
	"numalet explain shop/web-0 --node node1 --kubeconfig ~/.kube/config": {cluster: true},
	"numalet explain --node node1 --kubeconfig ~/.kube/config":            {cluster: true},
	"numalet nodes --kubeconfig admin.conf --machine fixture:dgx-h100=600 " +
		"--machine rack.yaml=400 --topology-manager-policy single-numa-node --label hollow=yes " +
		"--taint hollow=yes:NoSchedule --cleanup": {cluster: true},

	"bin/numalet playground --plugin './widgets --dir {dir} --widgets /tmp/widgets'": {
		up: "plugin -> agent: ListAndWatch"},
	"bin/numalet playground --examples none":                   {up: "drop a pod manifest into"},
	"numalet playground --topology-from machine.tar.gz":        {up: "drop a pod manifest into"},
	"numalet topology show":                                    {},
	"numalet topology show --topology-from fixture:eight-node": {},
	"numalet topology show -o json":                            {},
	"numalet topology fixtures":                                {},
	"numalet topology snapshot -o machine.tar.gz":              {},

	"numalet plugin sim --resource example.com/gpu --devices 8 --nodes 0-3 --dir DIR " +
		"--control /tmp/gpu.ctl": {up: "gpu.ctl"},
	"numalet plugin sim ctl --control /tmp/gpu.ctl state": {},
	"numalet plugin sim ctl --control /tmp/gpu.ctl unhealthy gpu-3 --reason " +
		`"XID 79: it has fallen off the bus"`: {},
	"numalet plugin sim ctl --control /tmp/gpu.ctl fault Allocate --delay 20s": {},

	"numalet plugin eni --dra --virtual-of ens8f0 --resource example.com/eni --kubeconfig=FILE": {
		cluster: true},

	"numalet device list example.com/gpu":                                          {add: atRoot},
	"numalet device cordon example.com/gpu gpu-3 --reason 'row remapping pending'": {add: atRoot},
	"numalet device uncordon example.com/gpu gpu-3":                                {add: atRoot},

	"bin/numalet plugin check --exec './widgets --dir {dir} --widgets /tmp/widgets'": {},
	"bin/numalet plugin check --exec './widgets --dir {dir} --widgets /tmp/widgets' " +
		"--lever 'sicken=echo broken >/tmp/widgets/a' --lever 'cure=echo >/tmp/widgets/a' " +
		"--lever 'vanish=rm /tmp/widgets/b' --lever 'return=touch /tmp/widgets/b'": {},
	"bin/numalet plugin check --exec './widgets --dir {dir} --widgets /tmp/widgets' " +
		"-o junit --out check.xml --transcript calls.txt --plugin-log widgets.log": {},
	"bin/numalet plugin check --exec './widgets --dir {dir} --widgets /tmp/widgets' " +
		"--only allocation,prefer --strict": {},
	"numalet plugin new widgets-plugin --resource vendor.com/widget":            {},
	"numalet plugin new fpga-plugin --resource vendor.com/fpga":                 {},
	"numalet driver new fpga-driver --driver fpga.vendor.com":                   {},
	"numalet driver claim gpu.example.com --node node1 --kubeconfig admin.conf": {cluster: true},
	"numalet plugin check --dra gpu.example.com --claim default/my-gpu/UID --slices slices.yaml " +
		"--exec './my-driver --plugin-data {dir} --registry {registry}' --transcript calls.txt": {
		cluster: true},

	"numalet rig": {add: few},
	"numalet rig --topology-from fixture:playground --mix training": {add: few},
	"numalet rig --topology-from machine.tar.gz --devices gpu=2 --mix inference " +
		"-o html --out report.html": {add: few},
	"numalet rig --topology-from fixture:epyc-nps4 --devices gpu=2 --mix training " +
		"--wait 1h": {add: few},
	"numalet rig --trace trace.jsonl " +
		"--policies restricted/single-numa-node+container/pod -o json": {},
	"numalet rig --config today=/var/lib/kubelet/config.yaml --config new=new.yaml": {
		add: few},
	"numalet rig --topology-from fixture:playground --mix training --pods 2000 " +
		"--config today=today.yaml --config new=new.yaml --no-timing": {},
	"numalet rig --topology-from fixture:dgx-h100 --mix pairs.yaml --pods 2000 " +
		"--policies none/single-numa-node+devices-near/devices-by-id": {},

	"numalet rig --topology-from fixture:playground --mix elastic --pods 3000 " +
		"--policies none,best-effort/restricted+lowest/packed/spread": {add: few},
	"numalet rig mixes elastic | sed /resizes:/d > still.yaml": {},
	"numalet rig --topology-from fixture:playground --mix still.yaml --pods 3000 " +
		"--policies none,best-effort/restricted+lowest/packed/spread": {add: few},
	"numalet rig --topology-from fixture:playground --mix pooled --pods 3000 " +
		"--policies restricted/single-numa-node+pod/container+pools,restricted+pod": {add: few},
	"numalet rig mixes pooled | sed /resources:/d > apart.yaml": {},
	"numalet rig --topology-from fixture:playground --mix apart.yaml --pods 3000 " +
		"--policies restricted/single-numa-node+pod/container+pools": {add: few},

	"numalet status":      {add: atRoot},
	"numalet pods":        {add: atRoot},
	"numalet problems":    {add: atRoot},
	"numalet explain app": {add: atRoot},
	"numalet events app":  {add: atRoot},
	"numalet logs app":    {add: atRoot},

	"numalet fit -f pod.yaml --server 127.0.0.1:10255":                          {},
	"numalet fit -f pod.yaml --count max --config /var/lib/kubelet/config.yaml": {},
	"numalet fit -f pod.yaml --topology-from fixture:epyc-nps4 --reserved-cpus 0 " +
		"--cpu-manager-policy static --topology-manager-policy single-numa-node " +
		"--devices example.com/gpu=8@0-3": {},
}

var (
	few    = []string{"--pods", "100"}
	atRoot = []string{"--root-dir=RUNNING"}
)

// TestDocumentedCommands runs the commands of all code blocks, in a folder with the files that they
// name. Other paths and addresses that they name are replaced by the test's own.
func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	d := newReader(t)
	var found []string
	for _, file := range append(files, "../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range commandBlocks(string(text)) {
			d.follow(filepath.Base(file), block)
			found = append(found, block...)
		}
	}
	for command := range documented {
		if !slices.Contains(found, command) {
			t.Errorf("no code block has it any more: %s", command)
		}
	}
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```")
	// A command is not followed by a colon, unlike the playground's title.
	aCommand = regexp.MustCompile(`(?m)^(?:\$ )?((?:bin/)?numalet(?: [^\s:]+(?:\s.*)?)?)$`)
	aComment = regexp.MustCompile(`\s+#.*`)
)

// commandBlocks returns the commands of each code block that has any, without comments.
func commandBlocks(text string) (blocks [][]string) {
	for _, block := range codeBlock.FindAllStringSubmatch(text, -1) {
		var commands []string
		whole := strings.ReplaceAll(block[1], "\\\n", " ")
		for _, line := range aCommand.FindAllStringSubmatch(whole, -1) {
			command := aComment.ReplaceAllString(line[1], "")
			commands = append(commands, strings.Join(strings.Fields(command), " "))
		}
		if len(commands) > 0 {
			blocks = append(blocks, commands)
		}
	}
	return blocks
}

// reader does what the documentation says.
type reader struct {
	t           *testing.T
	binary, dir string
	// places replaces what commands name by the test's own.
	places *strings.Replacer
}

func newReader(t *testing.T) *reader {
	t.Helper()
	binary, err := harness.Binary()
	if err != nil {
		t.Fatal(err)
	}
	running, other := harness.New(t), harness.New(t)
	running.Start()
	running.Pod("app", plain("app"))
	running.AwaitPhase("app-node", v1.PodRunning)
	other.Start() // writes the configuration
	other.Kill()
	dir := t.TempDir()
	r := &reader{t: t, binary: binary, dir: dir, places: strings.NewReplacer(
		"/var/lib/kubelet/config.yaml", filepath.Join(other.Dir, "config.yaml"),
		"/var/lib/kubelet", other.Root,
		"http://127.0.0.1:10255", running.URL(""),
		"127.0.0.1:10255", strings.TrimPrefix(running.URL(""), "http://"),
		"RUNNING", running.Root,
		"--dir DIR", "--dir "+filepath.Join(running.Root, "device-plugins"),
		"/tmp/gpu.ctl", filepath.Join(dir, "gpu.ctl"),
		"/tmp/widgets", filepath.Join(dir, "devices"))}
	r.samplePlugin()
	const policy = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n" +
		"cpuManagerPolicy: static\nreservedSystemCPUs: \"0\"\ntopologyManagerPolicy: "
	for name, text := range map[string]string{
		"pod.yaml":   limited("asked", "cpu: 1, memory: 64Mi"),
		"today.yaml": policy + "best-effort\n", "new.yaml": policy + "restricted\n",
		"pairs.yaml": "templates: [{name: pair, lifetime: {mean: 1h}, containers: [{limits: " +
			"{cpu: 4, memory: 8Gi, gpu: 1, example.com/nic: 1}}]}]\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r.end("setup", "numalet rig --pods 50 --write-trace trace.jsonl")
	return r
}

// samplePlugin builds the documentation's plugin, with its devices.
func (r *reader) samplePlugin() {
	r.t.Helper()
	build := exec.CommandContext(r.t.Context(), "go", "build", "-o",
		filepath.Join(r.dir, "widgets"), "../examples/plugin")
	if out, err := build.CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	devices := filepath.Join(r.dir, "devices")
	if err := os.Mkdir(devices, 0o755); err != nil {
		r.t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(devices, name), nil, 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
}

// follow runs the commands of a block one after the other.
func (r *reader) follow(file string, commands []string) {
	var stops []func()
	for _, command := range commands {
		how, known := documented[command]
		switch {
		case !known:
			r.t.Errorf("%s: what does it take to run this? say it in the table: %s", file, command)
		case how.cluster:
		case how.up != "":
			stops = append(stops, r.start(file, command, how.up))
		default:
			r.end(file, command, how.add...)
		}
	}
	for _, stop := range slices.Backward(stops) {
		stop()
	}
}

func (r *reader) command(ctx context.Context, command string, add ...string) *exec.Cmd {
	_, args, _ := strings.Cut(r.places.Replace(command), " ")
	script := "exec \"$0\" " + args + " \"$@\"" // by a shell, because commands have quotes
	shell := []string{"-c", script, r.binary}
	for _, arg := range add {
		shell = append(shell, r.places.Replace(arg))
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", shell...)
	cmd.Dir = r.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return cmd
}

// end runs a command that ends by itself.
func (r *reader) end(file, command string, add ...string) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 2*harness.Patience)
	defer cancel()
	out, err := r.command(ctx, command, add...).CombinedOutput()
	if err != nil {
		r.t.Errorf("%s: %s: %v\n%s", file, command, err, out)
	}
}

// start starts a command that keeps running, and returns when it is up. The result stops it.
func (r *reader) start(file, command, up string) (stop func()) {
	cmd := r.command(context.Background(), command)
	var out output
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended, which is reported below
		select {
		case err := <-ended:
			if err != nil {
				r.t.Errorf("%s: %s: stopped with %v\n%s", file, command, err, out.String())
			}
		case <-time.After(harness.Patience):
			_ = cmd.Process.Kill()
			r.t.Errorf("%s: %s: goes on after SIGTERM\n%s", file, command, out.String())
		}
	})
	r.t.Cleanup(stop)
	harness.Eventually(r.t, command+" is up", func() error {
		if len(ended) > 0 {
			r.t.Fatalf("%s: %s: ended at once\n%s", file, command, out.String())
		}
		_, err := os.Stat(filepath.Join(r.dir, up))
		if err != nil && !strings.Contains(out.String(), up) {
			return fmt.Errorf("it shows %q", out.String())
		}
		return nil
	})
	return stop
}

// output collects what a running command writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
