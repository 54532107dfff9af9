package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/test/harness"
)

// site is a node under a monitor, with the steps that fault tests share.
type site struct {
	*harness.Node
	t       *testing.T
	monitor *monitor
	wants   []workload
}

func newSite(t *testing.T) *site {
	t.Parallel()
	n := harness.New(t)
	return &site{Node: n, t: t, monitor: monitored(t, n)}
}

// must fails the test if a plugin or the runtime refused an order.
func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// want adds pods that must run in the end.
func (s *site) want(pods ...workload) {
	for _, w := range pods {
		s.wants = append(s.wants, w)
		s.Pod(w.name, w.manifest())
	}
}

// settles waits until all wanted pods run and nothing else is left.
func (s *site) settles() {
	s.t.Helper()
	s.Eventually(fmt.Sprintf("%d pods run and nothing else", len(s.wants)), func() error {
		return converged(s.t, s.Node, s.wants)
	})
}

// runs waits until a pod runs, whatever the others do. From then on its containers must not end.
func (s *site) runs(w workload) {
	s.t.Helper()
	s.AwaitPhase(w.node(), v1.PodRunning)
	s.monitor.leaveAlone(w.node(), true)
}

// waits waits until a pod is Pending for the reason, with the text in its message.
func (s *site) waits(w workload, reason, text string) {
	s.t.Helper()
	awaitPod(s.Node, w.node(), func(pod v1.Pod) error {
		st := pod.Status
		if st.Phase != v1.PodPending || st.Reason != reason || !strings.Contains(st.Message, text) {
			return fmt.Errorf("it is %s, %s: %s", st.Phase, st.Reason, st.Message)
		}
		return nil
	})
}

// called waits until a call has reached the plugin.
func (s *site) called(ctl *pluginsim.Client, rpc pluginsim.RPC) {
	s.t.Helper()
	s.Eventually(string(rpc)+" is called", func() error {
		state, err := ctl.State(s.t.Context())
		if err == nil && rpc != pluginsim.Serve && state.Calls[rpc] == 0 {
			err = fmt.Errorf("called so far were %v", state.Calls)
		}
		return err
	})
}

// refused waits until a pod was rejected and compares its status with the kubelet's words.
func (s *site) refused(w workload, reason, message string) {
	s.t.Helper()
	st := s.AwaitPhase(w.node(), v1.PodFailed).Status
	if st.Reason != reason || st.Message != "Pod was rejected: "+message {
		s.t.Errorf("pod %s: %s: %s\nwant %s: Pod was rejected: %s",
			w.name, st.Reason, st.Message, reason, message)
	}
}

// nothingLeaked removes all pods, checks that nothing is assigned any more, and that one pod can
// have everything.
func (s *site) nothingLeaked(all need) {
	s.t.Helper()
	pods, err := s.Pods()
	s.must(err)
	for node := range pods {
		s.monitor.leaveAlone(node, false)
		s.RemovePod(strings.TrimSuffix(node, "-node"))
	}
	s.wants = nil
	s.settles()
	s.want(workload{name: "everything", main: all})
	s.settles()
}

// everything returns all CPUs and, for plugins with that many, all devices.
func everything(gpus int) need { return need{cpus: fmt.Sprint(assignableCPUs), gpus: gpus} }

// awaitHealthy waits until the agent knows count healthy devices, by the kubelet's checkpoint.
func (s *site) awaitHealthy(count int) {
	s.t.Helper()
	path := filepath.Join(s.Root, "device-plugins", checkpoint.FileName)
	s.Eventually(fmt.Sprintf("%d devices are healthy", count), func() error {
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, registered, err := checkpoint.Decode(raw)
		if err == nil && len(registered[gpu]) != count {
			err = fmt.Errorf("healthy are %q", registered[gpu])
		}
		return err
	})
}

var (
	user  = workload{name: "user", main: need{cpus: "2", gpus: 1}}
	other = workload{name: "other", main: need{cpus: "3"}}
)
