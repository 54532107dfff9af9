package test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/placement/assigned"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/harness"
)

// pluginState says what has happened to a device plugin when the agent comes back.
type pluginState string

const (
	registered pluginState = "plugin registered"
	late       pluginState = "plugin late"
	never      pluginState = "plugin never"
	fewer      pluginState = "fewer devices"   // one of the held devices is gone, others are free
	tooFew     pluginState = "too few devices" // one of the held devices is gone, and none is free
)

// after is the result for a pod that held CPUs and two devices.
type after struct {
	phase  v1.PodPhase
	reason string // of the rejection
	waits  bool   // the pod first waits for the plugin
	// restarted is set if the pod gets a new sandbox, asked if Allocate is called for it again, same
	// if it keeps its CPUs and devices.
	restarted, asked, same bool
}

var (
	untouchedPod = after{phase: v1.PodRunning, same: true}
	sameAgain    = after{phase: v1.PodRunning, restarted: true, same: true}
)

// TestTruthTable: what a restart of the agent does to a pod with exclusive CPUs and devices. It
// depends on whether the machine was rebooted meanwhile, whether the pod's sandbox is alive, and
// what the plugin does.
func TestTruthTable(t *testing.T) {
	const refused = "UnexpectedAdmissionError"
	tests := []struct {
		newBoot, alive bool
		plugin         pluginState
		want           after
	}{
		// The boot is the one in which the plugin gave its answers, so it is not asked again.
		{false, true, registered, untouchedPod},
		{false, true, late, untouchedPod},
		{false, true, never, untouchedPod},
		{false, true, fewer, untouchedPod},
		{false, true, tooFew, untouchedPod},
		{false, false, registered, sameAgain},
		{false, false, late, sameAgain},
		{false, false, never, sameAgain},
		{false, false, fewer, sameAgain},
		{false, false, tooFew, sameAgain},
		// After a reboot the planned assignment is kept if it is available, and the plugin has to answer
		// again.
		{true, false, registered, after{v1.PodRunning, "", false, true, true, true}},
		{true, false, late, after{v1.PodRunning, "", true, true, true, true}},
		{true, false, never, after{phase: v1.PodFailed, reason: refused, waits: true}},
		{true, false, fewer, after{v1.PodRunning, "", false, true, true, false}},
		{true, false, tooFew, after{phase: v1.PodFailed, reason: refused}},
		// Normally no container outlives a boot: the machine was restored with its processes, or the root
		// directory is from another time. What the containers' labels say that they hold counts.
		{true, true, registered, untouchedPod},
		{true, true, late, untouchedPod},
		{true, true, never, untouchedPod},
		{true, true, fewer, untouchedPod},
		{true, true, tooFew, untouchedPod},
	}
	for _, tc := range tests {
		name := fmt.Sprintf("new boot %t, sandbox alive %t, %s", tc.newBoot, tc.alive, tc.plugin)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRestart(t)
			r.happens(tc.newBoot, tc.alive, tc.plugin)
			r.check(tc.plugin, tc.want)
		})
	}
}

// restart is a node whose agent was killed, with its state before that.
type restart struct {
	*harness.Node
	t          *testing.T
	plugin     *pluginsim.Client
	stopPlugin func()
	row        assigned.Row
	sandbox    string
	asked      int
}

const held = "own-node/main"

// newRestart has one running pod that holds four CPUs and two of eight devices.
func newRestart(t *testing.T) *restart {
	n := harness.New(t)
	eager(n)
	n.Args = append(n.Args, "--device-admission-wait=2s")
	n.Start()
	r := &restart{Node: n, t: t}
	r.plugin, r.stopPlugin = n.Plugin(gpu, "--devices=8", "--nodes=0-3")
	n.Pod("own", limited("own", "cpu: 4, memory: 1Gi, "+gpu+": 2"))
	n.AwaitPhase("own-node", v1.PodRunning)
	r.row, r.sandbox = r.running(), r.currentSandbox()
	r.asked = allocations(t, r.plugin)[0]
	n.Kill()
	return r
}

// running returns the row of the pod's container once it runs and its reason, which can be that of
// its last end, is gone. The row has no device health, which depends on the plugin.
func (r *restart) running() (row assigned.Row) {
	r.t.Helper()
	r.Eventually("the container runs", func() error {
		rows, err := r.Placements()
		if row = rows[held]; err == nil && (row.State.Phase != v1.PodRunning || row.State.Reason != "") {
			err = fmt.Errorf("its row is %+v", row)
		}
		return err
	})
	row.DeviceHealth = nil
	return row
}

// currentSandbox returns the id of the pod's ready sandbox, or "" if it has none.
func (r *restart) currentSandbox() string {
	for _, sb := range r.Runtime.State().Sandboxes {
		if sb.Ready && sb.Pod == "own-node" {
			return sb.ID
		}
	}
	return ""
}

// happens brings about the situation of the table's row and starts the agent.
func (r *restart) happens(newBoot, alive bool, plugin pluginState) {
	r.t.Helper()
	if newBoot {
		otherBoot(r.t, filepath.Join(r.Root, store.FileName))
	}
	if !alive {
		r.must(r.Runtime.KillSandbox("default/own-node"))
	}
	switch gone := r.row.Devices[gpu][0]; plugin {
	case late: // however slow this machine is
		r.stopPlugin()
		r.Args = append(r.Args, "--device-admission-wait="+harness.Patience.String())
	case never:
		r.stopPlugin()
	case fewer:
		r.must(r.plugin.Remove(r.t.Context(), gone))
	case tooFew:
		for i := range 8 {
			if id := fmt.Sprintf("gpu-%d", i); !slices.Contains(r.row.Devices[gpu][1:], id) {
				r.must(r.plugin.Remove(r.t.Context(), id))
			}
		}
	case registered:
	default:
		r.t.Fatalf("plugin state %q", plugin)
	}
	r.Start()
}

func (r *restart) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// check waits until the pod is as wanted and checks what it took to get there.
func (r *restart) check(plugin pluginState, want after) {
	r.t.Helper()
	if want.waits {
		awaitLogged(r.t, r.Node, "Pod waits", "own-node", "WaitingForDevicePlugin")
	}
	if plugin == late {
		r.plugin, r.stopPlugin = r.Plugin(gpu, "--devices=8", "--nodes=0-3")
		r.asked = 0
	}
	r.Eventually("the pod is "+string(want.phase), func() error {
		pods, err := r.Pods()
		if err != nil {
			return err
		}
		st := pods["own-node"].Status
		restarted := r.currentSandbox() != r.sandbox
		if st.Phase != want.phase || st.Reason != want.reason ||
			want.phase == v1.PodRunning && restarted != want.restarted {
			return fmt.Errorf("it is %s, %s: %s; new sandbox: %t",
				st.Phase, st.Reason, st.Message, restarted)
		}
		return r.admitted(plugin, want)
	})
	// The agent works, and has had time to do what it must not do.
	r.Pod("new", plain("new"))
	r.AwaitPhase("new-node", v1.PodRunning)
	if err := r.admitted(plugin, want); err != nil {
		r.t.Error(err)
	}
	if want.phase != v1.PodRunning {
		return
	}
	row := r.running()
	if got := cmp.Diff(r.row, row) == ""; got != want.same {
		r.t.Errorf("the placement was and is\n%+v\n%+v; want the same: %t", r.row, row, want.same)
	}
	if len(row.Devices[gpu]) != 2 || !row.Exclusive {
		r.t.Errorf("the placement is %+v, want two devices and exclusive CPUs", row)
	}
}

// admitted checks the number of Allocate calls.
func (r *restart) admitted(plugin pluginState, want after) error {
	if plugin == never {
		return nil // there is no plugin to ask
	}
	calls := 0
	if want.asked {
		calls = 1
	}
	if got := allocations(r.t, r.plugin)[0] - r.asked; got != calls {
		return fmt.Errorf("Allocate was called %d times, want %d", got, calls)
	}
	return nil
}

// otherBoot changes the state file to one of another boot of the kernel.
func otherBoot(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]json.RawMessage
	var data map[string]any
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file["data"], &data); err != nil {
		t.Fatal(err)
	}
	for _, pod := range data["pods"].([]any) {
		pod.(map[string]any)["bootID"] = "00000000-0000-4000-8000-000000000000"
	}
	if file["data"], err = json.Marshal(data); err != nil {
		t.Fatal(err)
	}
	file["checksum"], _ = json.Marshal(crc32.ChecksumIEEE(file["data"]))
	if raw, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}
