package test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/test/harness"
)

// awaitPluginProblem waits until /problems has this problem of the GPU plugin; "" stands for none.
func awaitPluginProblem(n *harness.Node, reason, text string) {
	n.Eventually("/problems has "+reason, func() error {
		var problems []complaint.Problem
		if err := json.Unmarshal([]byte(n.Get("/problems")), &problems); err != nil {
			return err
		}
		for _, p := range problems {
			if p.Source == "device-plugin" && p.Name == gpu && (reason == "" ||
				p.Reason == reason && strings.Contains(p.Message, text)) {
				if reason == "" {
					return fmt.Errorf("there is %+v", p)
				}
				return nil
			}
		}
		if reason != "" {
			return fmt.Errorf("there are %+v", problems)
		}
		return nil
	})
}

// A plugin that registers before it serves works, and its author is told that it would not work
// with the kubelet.
func TestRegisteredBeforeServingIsReported(t *testing.T) {
	s := newSite(t)
	s.Start()
	s.want(user)
	ctl, _ := s.Plugin(gpu, "--devices=8")
	s.runs(user)
	awaitPluginProblem(s.Node, "", "")
	s.must(ctl.Fault(t.Context(), pluginsim.Fault{
		RPC: pluginsim.Serve, Delay: metav1.Duration{Duration: 300 * time.Millisecond}, Count: 1,
	}))
	s.must(ctl.Restart(t.Context()))
	awaitPluginProblem(s.Node, "RegisteredBeforeServing", "--device-plugin-strict-registration")
	awaitLogged(t, s.Node, "Device plugin registered before it served", gpu)
	s.must(ctl.Restart(t.Context()))
	awaitPluginProblem(s.Node, "", "")
	s.settles()
}

// In strict mode such a plugin is refused as by the kubelet, and pods that wait for it say why.
func TestStrictRegistration(t *testing.T) {
	s := newSite(t)
	s.Args = append(s.Args, "--device-plugin-strict-registration",
		"--device-plugin-dial-timeout=300ms")
	s.Start()
	ctl, _ := s.Plugin(gpu, "--devices=8")
	s.want(user)
	s.runs(user)
	s.Kill()
	s.must(ctl.Fault(t.Context(), pluginsim.Fault{RPC: pluginsim.Serve, Hang: true}))
	s.Start()
	const why = "failed to dial device plugin: no answer in 300ms: dial unix "
	awaitPluginProblem(s.Node, "RegistrationRefused", why)
	late := workload{name: "late", main: need{cpus: "300m", gpus: 1}}
	s.want(late)
	s.waits(late, "WaitingForDevicePlugin", "the device plugin of "+gpu+" is disconnected: no "+
		"plugin has registered since the agent started; the last one that wanted to register was "+
		"refused: "+why)
	s.must(ctl.ClearFaults(t.Context()))
	s.settles()
	awaitPluginProblem(s.Node, "", "")
}

// If a plugin begins with an empty list, waiting pods are admitted with its real list.
func TestPluginBeginsWithAnEmptyList(t *testing.T) {
	s := newSite(t)
	s.Args = append(s.Args, "--device-plugin-empty-list-grace=10m")
	s.Start()
	s.want(user)
	s.waits(user, "WaitingForDevicePlugin", "no device plugin has registered "+gpu)
	ctl, _ := s.Plugin(gpu, "--devices=0")
	s.waits(user, "WaitingForDevicePlugin", "the device plugin of "+gpu+" is not ready: the "+
		"plugin on example.com_gpu.sock has listed no devices yet")
	s.must(ctl.Add(t.Context(), pluginsim.Device{ID: "gpu-0", Healthy: true}))
	s.runs(user)
	s.settles()
}
