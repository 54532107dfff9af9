package test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
)

// A call that hangs, is slow or fails for a while delays only the pod that needs the plugin. The
// pod says why it waits, and runs when the cause is gone.
func TestPluginCalls(t *testing.T) {
	hang := pluginsim.Fault{Hang: true}
	slow := pluginsim.Fault{Delay: metav1.Duration{Duration: 300 * time.Millisecond}}
	away := pluginsim.Fault{Code: "UNAVAILABLE", Message: "just a moment"}
	lie := func(l pluginsim.Lie) pluginsim.Fault { return pluginsim.Fault{Lie: l} }
	const (
		waits        = "WaitingForDevicePlugin"
		unregistered = "no device plugin has registered " + gpu
		refused      = unregistered + "; the last one that wanted to register was refused: " +
			"failed to get device plugin options: "
		late  = "the device plugin of " + gpu + " is not ready"
		cut   = late + ": plugin on example.com_gpu.sock: "
		asked = "no answer to Allocate yet from the device plugin of " + gpu +
			"; it has 30s for that"
		failed = "the device plugin of " + gpu + " failed: rpc error"
	)
	for name, test := range map[string]struct {
		rpc    pluginsim.RPC
		fault  pluginsim.Fault
		reason string // why the pod waits; empty if it runs in spite of the fault
		text   string
	}{
		"Register hangs":                {pluginsim.Register, hang, waits, unregistered},
		"Register fails":                {pluginsim.Register, away, waits, unregistered},
		"Register slow":                 {pluginsim.Register, slow, "", ""},
		"serves late":                   {pluginsim.Serve, slow, "", ""},
		"GetDevicePluginOptions hangs":  {pluginsim.Options, hang, waits, unregistered},
		"GetDevicePluginOptions fails":  {pluginsim.Options, away, waits, refused + "rpc error"},
		"GetDevicePluginOptions slow":   {pluginsim.Options, slow, "", ""},
		"ListAndWatch hangs":            {pluginsim.List, hang, waits, late + ": waiting for"},
		"ListAndWatch fails":            {pluginsim.List, away, waits, cut + "ListAndWatch: rpc"},
		"ListAndWatch slow":             {pluginsim.List, slow, "", ""},
		"GetPreferredAllocation hangs":  {pluginsim.Preferred, hang, "", ""},
		"GetPreferredAllocation fails":  {pluginsim.Preferred, away, "", ""},
		"GetPreferredAllocation slow":   {pluginsim.Preferred, slow, "", ""},
		"GetPreferredAllocation few":    {pluginsim.Preferred, lie(pluginsim.Few), "", ""},
		"GetPreferredAllocation empty":  {pluginsim.Preferred, lie(pluginsim.Empty), "", ""},
		"GetPreferredAllocation others": {pluginsim.Preferred, lie(pluginsim.Foreign), "", ""},
		"Allocate hangs":                {pluginsim.Allocate, hang, waits, asked},
		"Allocate fails":                {pluginsim.Allocate, away, waits, failed},
		"Allocate slow":                 {pluginsim.Allocate, slow, "", ""},
		"PreStartContainer hangs":       {pluginsim.PreStart, hang, "", ""},
		"PreStartContainer slow":        {pluginsim.PreStart, slow, "", ""},
		"every device twice":            {pluginsim.List, lie(pluginsim.Duplicate), "", ""},
		"devices on no node":            {pluginsim.List, lie(pluginsim.Nowhere), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ctl, _ := s.Plugin(gpu, "--devices=8", "--nodes=0-3", "--pre-start")
			fault := test.fault
			fault.RPC = test.rpc
			s.must(ctl.Fault(t.Context(), fault))
			s.Start()
			s.want(user, other)
			s.runs(other)
			s.called(ctl, test.rpc)
			if test.reason != "" {
				s.waits(user, test.reason, test.text)
			}
			if test.reason != "" || test.rpc == pluginsim.PreStart {
				s.must(ctl.ClearFaults(t.Context()))
			}
			// the plugin's list is not called again before it restarts
			if test.rpc == pluginsim.List && test.fault == away {
				s.must(ctl.Restart(t.Context()))
			}
			s.settles()
			s.nothingLeaked(everything(8))
		})
	}
}

// A refusal is final and has the kubelet's words. Other pods are not affected.
func TestPluginSaysNo(t *testing.T) {
	const reason = "UnexpectedAdmissionError"
	for name, test := range map[string]struct {
		fault   pluginsim.Fault
		message string
	}{
		"error": {
			pluginsim.Fault{
				RPC: pluginsim.Allocate, Code: "INTERNAL", Message: "device is on fire",
			},
			"Allocate failed due to rpc error: code = Internal desc = device is on fire, " +
				"which is unexpected",
		},
		"nothing in the answer": {
			pluginsim.Fault{RPC: pluginsim.Allocate, Lie: pluginsim.Empty},
			"Allocate failed due to no containers return in allocation response , " +
				"which is unexpected",
		},
		"no devices at all": {
			pluginsim.Fault{RPC: pluginsim.List, Lie: pluginsim.Empty},
			"Allocate failed due to no healthy devices present; cannot allocate " +
				"unhealthy devices " +
				gpu + ": its device plugin lists no devices, which is unexpected",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			s.Args = append(s.Args, "--device-plugin-empty-list-grace=100ms")
			ctl, _ := s.Plugin(gpu, "--devices=2")
			s.must(ctl.Fault(t.Context(), test.fault))
			s.Start()
			s.want(user, other)
			s.runs(other)
			s.refused(user, reason, test.message)
			s.must(ctl.ClearFaults(t.Context()))
			s.must(ctl.Restart(t.Context()))
			s.nothingLeaked(everything(2))
		})
	}
}

// A PreStartContainer failure appears on the container, as with the kubelet, and the call is tried
// again.
func TestPreStartFails(t *testing.T) {
	s := newSite(t)
	ctl, _ := s.Plugin(gpu, "--devices=1", "--pre-start")
	s.must(ctl.Fault(t.Context(), pluginsim.Fault{
		RPC: pluginsim.PreStart, Code: "INTERNAL", Message: "cannot reset",
	}))
	s.Start()
	s.want(user, other)
	s.runs(other)
	got := awaitReason(s.Node, user.node(), "CreateContainerConfigError")
	want := "device plugin PreStartContainer rpc failed with err: " +
		"rpc error: code = Internal desc = cannot reset"
	if got.Message != want {
		t.Errorf("message %q, want %q", got.Message, want)
	}
	awaitEvent(s.Node, user.node(), "Failed", "Error: "+want, 1)
	awaitExplained(s.Node, user.node(),
		"Container main: waiting, CreateContainerConfigError: "+want)
	s.must(ctl.ClearFaults(t.Context()))
	s.settles()
}

// A pod is rejected when the deadline for waiting is over; with 0 at once.
func TestAdmissionWait(t *testing.T) {
	for wait, first := range map[string]bool{"1s": true, "0": false} {
		t.Run(wait, func(t *testing.T) {
			s := newSite(t)
			s.Args = append(s.Args, "--device-admission-wait="+wait)
			s.Start()
			s.want(user)
			s.refused(user, "OutOf"+gpu, "Node didn't have enough resource: "+gpu+
				", requested: 1, used: 0, capacity: 0")
			if waited := logged(t, s.Node, "Pod waits", user.node()) > 0; waited != first {
				t.Errorf("waited: %v, want %v", waited, first)
			}
			s.Plugin(gpu, "--devices=1")
			awaitNumbers(s.Node, 1, 1) // with 0 a pod is rejected until the list is there
			s.nothingLeaked(everything(1))
		})
	}
}

// Pods arrive before their plugin, as after a reboot. All run once the plugin is there; if there
// are too few devices, the older pod gets them.
func TestPluginComesLate(t *testing.T) {
	s := newSite(t)
	s.Start()
	for i := range 20 {
		s.want(workload{name: fmt.Sprintf("early%d", i), main: need{cpus: "300m", gpus: 1}})
	}
	older := workload{name: "older", main: need{cpus: "300m", nics: 1}}
	newer := workload{name: "newer", main: need{cpus: "300m", nics: 1}}
	s.want(older)
	s.waits(older, "WaitingForDevicePlugin", "no device plugin has registered "+nic)
	s.Pod(newer.name, newer.manifest())
	s.waits(newer, "WaitingForDevicePlugin", "no device plugin has registered "+nic)
	s.Plugin(nic, "--devices=1")
	s.runs(older)
	s.refused(newer, "UnexpectedAdmissionError", "Allocate failed due to requested number of "+
		"devices unavailable for "+nic+". Requested: 1, Available: 0, which is unexpected")
	s.RemovePod(newer.name)
	s.Plugin(gpu, "--devices=20")
	s.settles()
	s.nothingLeaked(everything(20))
}

// The death of a plugin ends no pod: running pods go on, new ones wait until the plugin is back.
func TestPluginCrashes(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *site, *pluginsim.Client, func()){
		"crashes": func(t *testing.T, s *site, ctl *pluginsim.Client, _ func()) {
			s.must(ctl.Crash(t.Context()))
		},
		"is killed": func(_ *testing.T, _ *site, _ *pluginsim.Client, stop func()) { stop() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ctl, stop := s.Plugin(gpu, "--devices=2")
			s.Start()
			s.want(user)
			s.settles()
			s.runs(user)
			end(t, s, ctl, stop)
			late := workload{name: "late", main: need{cpus: "300m", gpus: 1}}
			s.want(late, other)
			s.waits(late, "WaitingForDevicePlugin", "the device plugin of "+gpu+" is disconnected")
			s.runs(other)
			s.Plugin(gpu, "--devices=2")
			s.settles()
			s.nothingLeaked(everything(2))
		})
	}
}

// A restarted agent finds the pods running and leaves them so, whatever their plugin does. Running
// plugins register again, since kubelet.sock is new.
func TestAgentComesBack(t *testing.T) {
	for _, name := range []string{"plugin there", "plugin away", "plugin with other devices"} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			ctl, stop := s.Plugin(gpu, "--devices=3")
			s.Start()
			inits := workload{name: "inits", main: need{cpus: "2", gpus: 1},
				init:    &need{cpus: "4", gpus: 1, script: "exit=0"},
				sidecar: &need{cpus: "1", gpus: 1}}
			s.want(user, inits)
			s.settles()
			s.runs(user)
			s.runs(inits)
			s.Kill()
			before, err := ctl.State(t.Context())
			s.must(err)
			switch name {
			case "plugin away":
				stop()
			case "plugin with other devices":
				s.must(ctl.Remove(t.Context(), "gpu-0", "gpu-1", "gpu-2"))
				s.must(ctl.Add(t.Context(), pluginsim.Device{ID: "gpu-9", Healthy: true}))
			}
			s.Start()
			s.settles()
			late := workload{name: "late", main: need{cpus: "300m", gpus: 1}}
			switch name {
			case "plugin there":
				s.want(other)
			case "plugin away":
				s.Pod(late.name, late.manifest())
				s.waits(late, "WaitingForDevicePlugin",
					"the device plugin of "+gpu+" is disconnected")
				ctl, _ = s.Plugin(gpu, "--devices=4")
				s.wants = append(s.wants, late)
			case "plugin with other devices":
				s.want(late)
			}
			s.settles()
			after, err := ctl.State(t.Context())
			s.must(err)
			calls := after.Calls[pluginsim.Allocate]
			if name != "plugin away" {
				calls -= before.Calls[pluginsim.Allocate]
			}
			if want := len(s.wants) - 2; name != "plugin there" && calls != want ||
				name == "plugin there" && calls != 0 {
				t.Errorf("%d calls of Allocate after the restart", calls)
			}
		})
	}
}

// Of two plugins of one resource, the one that registered last serves it. When it goes, the other
// takes over. Pods keep what they have.
func TestTakeOver(t *testing.T) {
	s := newSite(t)
	s.PluginNamed("old", gpu, "--devices=2", "--socket=old.sock", "--id-prefix=old")
	s.Start()
	first := workload{name: "first", main: need{cpus: "300m", gpus: 1}}
	s.want(first)
	s.runs(first)
	_, stop := s.PluginNamed("new", gpu, "--devices=2", "--socket=new.sock", "--id-prefix=new")
	s.Eventually("the devices of the new one are those of the resource", func() error {
		if text := s.Get("/devices"); !strings.Contains(text, "new-0") {
			return fmt.Errorf("they are %s", text)
		}
		return nil
	})
	second := workload{name: "second", main: need{cpus: "300m", gpus: 1}}
	s.want(second)
	s.runs(second)
	stop()
	s.Eventually("the devices of the old one are back", func() error {
		if text := s.Get("/devices"); !strings.Contains(text, "old-1") {
			return fmt.Errorf("they are %s", text)
		}
		return nil
	})
	third := workload{name: "third", main: need{cpus: "300m", gpus: 1}}
	s.want(third)
	s.settles()
	for w, prefix := range map[string]string{"first": "old-", "second": "new-", "third": "old-"} {
		got := devicesOf(container(t, s.Node, w+"-node", "main"), gpu)
		if len(got) != 1 || !strings.HasPrefix(got[0], prefix) {
			t.Errorf("%s has %q, want one device of %s", w, got, prefix)
		}
	}
}

// Health and device lists change under running pods. Those pods keep what they have, new ones wait
// for healthy devices, and a device that comes back still belongs to its pod.
func TestDevicesChange(t *testing.T) {
	s := newSite(t)
	ctl, _ := s.Plugin(gpu, "--devices=2")
	s.Start()
	s.want(user)
	s.settles()
	s.runs(user)
	mine := devicesOf(container(t, s.Node, user.node(), "main"), gpu)[0]
	s.awaitHealthy(2) // at first the file has none, too
	s.must(ctl.SetHealth(t.Context(), false, "gpu-0", "gpu-1"))
	late := workload{name: "late", main: need{cpus: "300m", gpus: 1}}
	s.awaitHealthy(0)
	s.want(late)
	s.waits(late, "WaitingForHealthyDevices", "Allocate failed due to no healthy devices present; "+
		"cannot allocate unhealthy devices "+gpu+", which is unexpected")

	s.must(ctl.Remove(t.Context(), mine))
	s.must(ctl.Add(t.Context(), pluginsim.Device{ID: "gpu-2", Healthy: true}))
	s.awaitHealthy(1)
	s.settles()
	s.must(ctl.Add(t.Context(), pluginsim.Device{ID: mine, Healthy: true}))
	s.awaitHealthy(2)
	third := workload{name: "third", main: need{cpus: "300m", gpus: 1}}
	s.want(third)
	s.waits(third, "WaitingForHealthyDevices", "Allocate failed due to requested number of "+
		"devices unavailable for "+gpu+". Requested: 1, Available: 0, which is unexpected")
	s.must(ctl.SetHealth(t.Context(), true, "gpu-0", "gpu-1"))
	s.awaitHealthy(3)
	s.settles()
	s.nothingLeaked(everything(3))
}
