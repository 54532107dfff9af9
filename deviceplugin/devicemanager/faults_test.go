package devicemanager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/scratch"
	"github.com/numalet/numalet/topology"
)

// caller makes the named call.
func (r *rig) caller(rpc sim.RPC, resource string) error {
	var err error
	switch rpc {
	case sim.Preferred:
		_, err = r.Preferred(r.t.Context(),
			PreferredRequest{Resource: resource, Available: []string{"gpu-0"}, Size: 1})
	case sim.Allocate:
		_, err = r.Allocate(r.t.Context(), resource, []string{"gpu-0"})
	case sim.PreStart:
		err = r.PreStart(r.t.Context(), resource, []string{"gpu-0"})
	default:
		r.t.Fatalf("nobody calls %s", rpc)
	}
	return err
}

func TestHangingConnections(t *testing.T) {
	for rpc, tc := range map[sim.RPC]struct {
		deadlines Deadlines
		problem   string
	}{
		sim.Serve: {Deadlines{Dial: 200 * time.Millisecond},
			"failed to dial device plugin: no answer in 200ms: dial unix"},
		sim.List: {Deadlines{FirstList: 200 * time.Millisecond},
			"ListAndWatch: no list of devices came in time (200ms)"},
	} {
		t.Run(string(rpc), func(t *testing.T) {
			r := newRig(t, Config{Deadlines: tc.deadlines})
			plugin := r.plugin(sim.Config{
				Resource: gpu, Faults: []sim.Fault{{RPC: rpc, Hang: true}},
			})
			inv := r.until("the deadline's problem", func(inv Inventory) bool {
				return strings.Contains(inv.Resources[gpu].Problem, tc.problem)
			})
			if res := inv.Resources[gpu]; res.Connected || len(res.Devices) > 0 {
				t.Errorf("a plugin that hangs is in the inventory as %+v", res)
			}
			var stopped *StoppedError
			if err := r.caller(sim.Allocate, gpu); !errors.As(err, &stopped) {
				t.Errorf("Allocate says %v", err)
			}
			plugin.must(plugin.ClearFaults(t.Context()))
			plugin.must(plugin.Restart(t.Context()))
			r.untilConnected(gpu)
		})
	}
}

func TestFirstListDeadlineEndsWithTheFirstList(t *testing.T) {
	r := newRig(t, Config{Deadlines: Deadlines{FirstList: 300 * time.Millisecond}})
	r.plugin(sim.Config{Resource: gpu})
	r.untilConnected(gpu)
	r.plugin(sim.Config{Resource: nic, Faults: []sim.Fault{{RPC: sim.List, Hang: true}}})
	r.until("the deadline of a later plugin", func(inv Inventory) bool {
		return strings.Contains(inv.Resources[nic].Problem, "no list of devices came in time")
	})
	if res := r.Inventory().Resources[gpu]; !res.Connected {
		t.Errorf("the earlier plugin met the deadline, and is gone: %s", res.Problem)
	}
}

func TestHangingCalls(t *testing.T) {
	for rpc, tc := range map[sim.RPC]struct {
		deadlines Deadlines
		problem   string
	}{
		sim.Preferred: {Deadlines{Preferred: 200 * time.Millisecond}, "device plugin " +
			"GetPreferredAllocation rpc failed with err: GetPreferredAllocation was not answered " +
			"within its deadline of 200ms"},
		sim.Allocate: {Deadlines{Allocate: 200 * time.Millisecond},
			"Allocate was not answered within its deadline of 200ms"},
		sim.PreStart: {Deadlines{PreStart: 200 * time.Millisecond}, "device plugin " +
			"PreStartContainer rpc failed with err: PreStartContainer was not answered within " +
			"its deadline of 200ms"},
	} {
		t.Run(string(rpc), func(t *testing.T) {
			r := newRig(t, Config{Deadlines: tc.deadlines})
			hung := r.plugin(sim.Config{
				Resource: gpu, PreStart: true, Faults: []sim.Fault{{RPC: rpc, Hang: true}},
			})
			r.plugin(sim.Config{Resource: nic, PreStart: true})
			r.untilConnected(gpu)
			r.untilConnected(nic)
			answer := make(chan error, 1)
			go func() { answer <- r.caller(rpc, gpu) }()
			eventually(t, "the call to reach the plugin", func() bool {
				return hung.calls(rpc) == 1
			})
			if err := r.caller(rpc, nic); err != nil {
				t.Errorf("beside a plugin that hangs, another one answers %v", err)
			}
			if err := <-answer; err == nil || !strings.HasPrefix(err.Error(), tc.problem) {
				t.Errorf("the call that hangs ended with %v", err)
			}
			hung.must(hung.ClearFaults(t.Context()))
			if err := r.caller(rpc, gpu); err != nil {
				t.Errorf("after it hung, the plugin answers %v", err)
			}
		})
	}
}

func TestFailingCalls(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu, PreStart: true})
	r.untilConnected(gpu)
	for rpc, want := range map[sim.RPC]string{
		sim.Preferred: "device plugin GetPreferredAllocation rpc failed with err: rpc error: " +
			"code = Aborted desc = no",
		sim.Allocate: "rpc error: code = Aborted desc = no",
		sim.PreStart: "device plugin PreStartContainer rpc failed with err: rpc error: code = " +
			"Aborted desc = no",
	} {
		plugin.must(plugin.Fault(t.Context(),
			sim.Fault{RPC: rpc, Code: "aborted", Message: "no", Count: 1}))
		if err := r.caller(rpc, gpu); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", rpc, err, want)
		}
		if err := r.caller(rpc, gpu); err != nil {
			t.Errorf("%s, once the fault is used up: %v", rpc, err)
		}
	}
	for rpc, want := range map[sim.RPC]string{
		sim.Preferred: "unknown Device Plugin example.com/other",
		sim.Allocate:  "unknown Device Plugin example.com/other",
		sim.PreStart:  "endpoint not found in cache for a registered resource: example.com/other",
	} {
		if err := r.caller(rpc, "example.com/other"); err == nil || err.Error() != want {
			t.Errorf("%s: error %v, want %s", rpc, err, want)
		}
	}
}

// A plugin that itself ends its list, with whatever code, is left alone until it registers.
func TestListThatThePluginEnds(t *testing.T) {
	for _, code := range []string{"INTERNAL", "UNAVAILABLE"} {
		r := newRig(t, Config{Deadlines: Deadlines{FirstList: 200 * time.Millisecond}})
		plugin := r.plugin(sim.Config{Resource: gpu})
		r.untilConnected(gpu)
		plugin.untilRegistered(1)
		plugin.must(plugin.Fault(t.Context(), sim.Fault{
			RPC: sim.List, Code: code, Message: "broken", Count: 1,
		}))
		res := r.untilDisconnected(gpu)
		if want := "plugin on example.com_gpu.sock: ListAndWatch: rpc error: code = "; res.Capacity != 8 ||
			!strings.HasPrefix(res.Problem, want) || !strings.HasSuffix(res.Problem, "desc = broken") {
			t.Errorf("the resource is %+v", res)
		}
		silent := r.plugin(sim.Config{Resource: nic, Faults: []sim.Fault{{RPC: sim.List, Hang: true}}})
		eventually(t, "one that sends no list to be called again", func() bool {
			return silent.calls(sim.List) == 3
		})
		if n := plugin.calls(sim.List); n != 1 {
			t.Errorf("%s: it was called %d times, want once", code, n)
		}
		plugin.must(plugin.Restart(t.Context()))
		plugin.untilRegistered(2)
		r.untilConnected(gpu)
	}
}

// A plugin whose list fails believes that it is registered, and nobody can tell it to register
// again: it is called again after a pause.
func TestFailingListsAreTriedAgain(t *testing.T) {
	r := newRig(t, Config{Deadlines: Deadlines{Ended: time.Millisecond}})
	plugin := r.plugin(sim.Config{Resource: gpu, Faults: []sim.Fault{
		{RPC: sim.List, Code: "INTERNAL", Message: "broken"},
	}})
	r.until("the problem", func(inv Inventory) bool {
		return strings.Contains(inv.Resources[gpu].Problem, "broken")
	})
	plugin.must(plugin.ClearFaults(t.Context()))
	r.untilConnected(gpu)
	state, err := plugin.State(t.Context())
	plugin.must(err)
	if state.Registered != 1 {
		t.Errorf("it registered %d times, want once", state.Registered)
	}
}

// A plugin that serves but does not answer GetDevicePluginOptions is refused, by both ways to
// register, and the plugin that serves the resource stays.
func TestRegistrationOfAPluginWithoutAnswer(t *testing.T) {
	for name, tt := range map[string]struct {
		fault sim.Fault
		want  string
	}{
		"fails": {sim.Fault{Code: "INTERNAL", Message: "no driver"},
			"rpc error: code = Internal desc = no driver"},
		"is unavailable": {sim.Fault{Code: "UNAVAILABLE", Message: "later"},
			"rpc error: code = Unavailable desc = later"},
		"hangs": {sim.Fault{Hang: true}, "it was not answered in time (300ms)"},
	} {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s strict=%t", name, strict), func(t *testing.T) {
				r := newRig(t, Config{
					Dirs: Dirs{Registry: scratch.Dir(t)}, Strict: strict,
					Deadlines: Deadlines{Options: 300 * time.Millisecond},
				})
				r.plugin(sim.Config{Resource: gpu, Socket: "old.sock", Devices: spread(t, 4, "0")})
				r.untilConnected(gpu)
				tt.fault.RPC = sim.Options
				r.plugin(sim.Config{Resource: nic, Faults: []sim.Fault{tt.fault}})
				newer := r.registryPlugin(sim.Config{
					Resource: gpu, Socket: "new.sock", Faults: []sim.Fault{tt.fault},
				}, nil)
				want := "failed to get device plugin options: " + tt.want +
					"; a plugin has to answer GetDevicePluginOptions at once"
				inv := r.until("both to be refused", func(inv Inventory) bool {
					return inv.Refused[nic] == want && inv.Refused[gpu] == want
				})
				if res := inv.Resources[gpu]; !res.Connected || len(res.Devices) != 4 {
					t.Errorf("the plugin that served has %+v", res)
				}
				if _, there := inv.Resources[nic]; there || newer.calls(sim.List) > 0 {
					t.Error("a plugin that was refused is there")
				}
				err := registerWith(t, r.dir, v1beta1.Version, "example.com_nic.sock", nic)
				if status.Convert(err).Message() != want {
					t.Errorf("Register says %v, want %s", err, want)
				}
				newer.must(newer.ClearFaults(t.Context()))
				r.until("the newer one to take over", func(inv Inventory) bool {
					return len(inv.Resources[gpu].Devices) == 8 && inv.Refused[gpu] == ""
				})
			})
		}
	}
}

// A plugin older than GetDevicePluginOptions gets neither optional call.
func TestPluginWithoutOptions(t *testing.T) {
	r := newRig(t, Config{})
	r.plugin(sim.Config{Resource: gpu, PreStart: true, Faults: []sim.Fault{
		{RPC: sim.Options, Code: "UNIMPLEMENTED", Message: "what?"},
	}})
	if res := r.untilConnected(gpu); res.Options != (Options{Reasons: true, Places: true}) || healthy(res.Devices) != 8 {
		t.Errorf("the resource is %+v", res)
	}
}

func TestLies(t *testing.T) {
	r := newRig(t, Config{})
	plugin := r.plugin(sim.Config{Resource: gpu})
	req := Request{Resource: r.untilConnected(gpu), N: 2, Hint: topology.Hint{Any: true}}
	for lie, want := range map[sim.Lie][]string{
		sim.Foreign: {"gpu-0", "gpu-1"}, sim.Few: {"gpu-0", "gpu-1"}, sim.Empty: {"gpu-0", "gpu-1"},
	} {
		plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.Preferred, Lie: lie}))
		ask, wanted := AdviceWanted(req)
		if !wanted {
			t.Fatal("no advice wanted")
		}
		var err error
		var bad *AnswerError
		if req.Advice, err = r.Preferred(t.Context(), ask); !errors.As(err, &bad) {
			t.Errorf("of lie %s is said: %v", lie, err)
		}
		if got, err := Choose(req); err != nil || !slices.Equal(got, want) {
			t.Errorf("with advice %q the choice is %q, %v", req.Advice, got, err)
		}
	}
	plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.Allocate, Lie: sim.Empty}))
	err := r.caller(sim.Allocate, gpu)
	if err == nil ||
		!strings.HasPrefix(err.Error(), "no containers return in allocation response") {
		t.Errorf("an empty answer gives %v", err)
	}
	for _, lie := range []sim.Lie{sim.Duplicate, sim.Nowhere} {
		before := r.Inventory().Resources[gpu].Devices
		plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.List, Lie: lie}))
		plugin.must(plugin.SetHealth(t.Context(), lie != sim.Duplicate, "gpu-7"))
		inv := r.until("the lying list", func(inv Inventory) bool {
			return inv.Resources[gpu].Devices[7].Healthy == (lie != sim.Duplicate)
		})
		after := inv.Resources[gpu]
		for i, d := range before {
			if i != 7 && *d != *after.Devices[i] || d.ID != after.Devices[i].ID {
				t.Errorf("lie %s changed device %+v to %+v", lie, d, after.Devices[i])
			}
		}
		if len(after.Devices) != len(before) || after.Complaint == "" {
			t.Errorf("lie %s gives %d devices, complaint %q",
				lie, len(after.Devices), after.Complaint)
		}
	}
	plugin.must(plugin.Fault(t.Context(), sim.Fault{RPC: sim.List, Lie: sim.Empty}))
	inv := r.until("no device", func(inv Inventory) bool {
		return len(inv.Resources[gpu].Devices) == 0
	})
	if !inv.Resources[gpu].Connected {
		t.Error("a plugin without devices is not connected")
	}
}
