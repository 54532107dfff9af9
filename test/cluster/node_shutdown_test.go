package cluster_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/logind"
	"github.com/numalet/numalet/test/cluster/faults"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// goingDown is a node whose agent follows a logind of the test, with a wave for priority 0 and one for 5.
type goingDown struct {
	*side
	t     *testing.T
	bus   *logind.Bus
	proxy *faults.Proxy
}

func newGoingDown(t *testing.T, agent string) goingDown {
	t.Helper()
	bus, err := logind.Listen(filepath.Join(t.TempDir(), "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	t.Setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.Address())
	const long = 1800 // seconds: no wave's time is up in the test
	bus.Delay(2*long*1e9, nil)
	c, n := rig.Start(t), harness.NewWith(t, crisim.Config{Images: []string{rootImage}})
	rig.ThisMachine(n)
	if agent == "kubelet" {
		rig.StockKubelet(t, n)
	}
	n.Settings["cpuManagerPolicy"], n.Settings["topologyManagerPolicy"] = "none", "none"
	n.Settings["evictionHard"] = map[string]string{"memory.available": "1Mi"}
	n.Settings["shutdownGracePeriodByPodPriority"] = []map[string]any{
		{"priority": 0, "shutdownGracePeriodSeconds": long},
		{"priority": 5, "shutdownGracePeriodSeconds": long},
	}
	s := goingDown{side: &side{Cluster: c, Node: c.Join(n, agent)}, t: t, bus: bus}
	s.proxy = stand(t, c, s.Node, rand.Uint64())
	s.Start()
	s.AwaitReady(s.Name)
	s.inhibited(1)
	s.Apply(fmt.Sprintf("{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: %s}, value: 7}",
		s.class()))
	t.Cleanup(func() { s.MustRun("delete", "priorityclass", s.class()) })
	return s
}

func (s goingDown) class() string { return s.Namespace + "-late" }

func (s goingDown) inhibited(want int) {
	s.t.Helper()
	harness.Eventually(s.t, fmt.Sprint(want, " inhibitors"), func() error {
		if got := s.bus.Locks(); got != want {
			return fmt.Errorf("there are %d", got)
		}
		return nil
	})
}

// start creates a pod with a volume in memory, and waits until it runs.
func (s goingDown) start(name, more string) *v1.Pod {
	s.t.Helper()
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s
 nodeName: %s, automountServiceAccountToken: false, volumes: [{name: cache, emptyDir: {medium: Memory}}],
 containers: [{name: main, image: %q, volumeMounts: [{name: cache, mountPath: /cache}]}]}}`,
		name, more, s.Name, rootImage))
	return await(s.t, s.Cluster, s.Namespace, name, runs)
}

// ended waits until a pod of the API server has failed since the machine goes down, and returns what it has
// of it.
func (s goingDown) ended(name string) string {
	s.t.Helper()
	return how(await(s.t, s.Cluster, s.Namespace, name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed }))
}

func how(p *v1.Pod) string {
	return fmt.Sprintln(p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message, disruption(p))
}

// mounted lists what is mounted in a pod's directory.
func (s goingDown) mounted(p *v1.Pod) (paths []string) {
	s.t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		s.t.Fatal(err)
	}
	below := filepath.Join(s.Root, "pods", string(p.UID)) + "/"
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], below) {
			paths = append(paths, fields[4])
		}
	}
	return paths
}

// told reports whether a pod's container was told to stop.
func (s goingDown) reported(pod string) error {
	if !slices.ContainsFunc(s.Runtime.Journal(0), func(c crisim.Call) bool {
		return c.Method == "StopContainer" && c.Subject.Pod == pod
	}) {
		return fmt.Errorf("%s was not told to stop", pod)
	}
	return nil
}

// boot has the machine boot: nothing runs, what was kept is of another boot, and the agent begins.
func (s goingDown) boot() {
	s.t.Helper()
	s.Kill()
	s.Runtime.ClearFaults()
	for _, sb := range s.Runtime.State().Sandboxes {
		if sb.Ready {
			if err := s.Runtime.KillSandbox(sb.ID); err != nil {
				s.t.Fatal(err)
			}
		}
	}
	marks := filepath.Join(s.Root, "numalet_endings")
	if raw, err := os.ReadFile(marks); err == nil {
		older := regexp.MustCompile(`"bootID": *"[^"]+"`).ReplaceAll(raw, []byte(`"bootID": "before"`))
		if err := os.WriteFile(marks, older, 0o600); err != nil || bytes.Equal(older, raw) {
			s.t.Fatalf("%v: %s", err, older)
		}
	}
	s.bus.Restart()
	s.Start()
	s.AwaitReady(s.Name)
	s.inhibited(1)
}

// TestNodeShutdownKilled: the agent is killed in a shutdown when a pod has ended, or while it ends, and the
// API server does not know it. The next run does not start the pod again, whether the machine still goes
// down, which it learns late, or does not any more; and other pods run.
func TestNodeShutdownKilled(t *testing.T) {
	for name, cancelled := range map[string]bool{"and-on": false, "and-cancelled": true} {
		for at, fault := range map[string]crisim.Fault{
			"ended": {}, "ends": {Method: "StopContainer", Pod: "low", Hang: true},
		} {
			t.Run(at+"-"+name, func(t *testing.T) {
				s := newGoingDown(t, "numalet")
				e := killing{s.t, s.Runtime, s.proxy, s.Client, s.Namespace}
				s.start("low", "")
				if fault.Hang {
					if err := s.Runtime.SetFault(fault); err != nil {
						t.Fatal(err)
					}
				}
				s.proxy.Set(faults.Trouble{Share: 1, Hang: true})
				s.proxy.Cut()
				s.bus.Prepare(true)
				harness.Eventually(t, "the pod is told to stop", func() error { return s.reported("low") })
				if !fault.Hang {
					harness.Eventually(t, "it has ended", func() error {
						if c, ok := s.Runtime.State().Container("low", "main"); !ok || c.Running() {
							return fmt.Errorf("its container is %+v", c)
						}
						return nil
					})
				}
				s.Kill()
				s.Runtime.ClearFaults()
				s.proxy.Set(faults.Trouble{})
				if cancelled {
					s.bus.Prepare(false)
				}
				s.Start()
				if got := s.ended("low"); !strings.Contains(got, "Failed Terminated Pod was terminated in response to") {
					t.Errorf("the API server has %s", got)
				}
				if got := e.started("low"); got != 1 {
					t.Errorf("its container was started %d times", got)
				}
				if cancelled {
					s.AwaitReady(s.Name)
					s.start("fresh", "")
				}
				s.MustRun("delete", "pods", "--all", "--timeout=1m")
			})
		}
	}
}

// TestNodeShutdown: pods of the API server end in waves here and under the stock kubelet, with the same
// statuses. After the boot those that have ended stay so. With numalet a wave waits for the volumes of the
// one before, and when the machine may go down the API server has all statuses; the kubelet does not wait
// for a volume that cannot be unmounted at once, nor for the API server.
func TestNodeShutdown(t *testing.T) {
	ends := map[string]string{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) { ends[agent] = shutDown(newGoingDown(t, agent), agent == "numalet") })
	}
	if diff := cmp.Diff(ends["kubelet"], ends["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet:\n%s", diff)
	}
}

// shutDown returns how the pods have ended.
func shutDown(s goingDown, ours bool) (ends string) {
	t := s.t
	s.Apply(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: done, annotations: {sim.numalet.io/main:
 "exit=0"}}, spec: {nodeName: %s, restartPolicy: Never, automountServiceAccountToken: false,
 containers: [{name: main, image: %q}]}}`, s.Name, rootImage))
	await(t, s.Cluster, s.Namespace, "done", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodSucceeded })
	low := s.start("low", "")
	high := s.start("high", "priorityClassName: "+s.class()+",")
	if len(s.mounted(low)) == 0 {
		t.Fatal("nothing is mounted for low")
	}
	if ours {
		s.waves(low, high)
	} else {
		s.bus.Prepare(true)
	}
	s.inhibited(0)
	if p, err := get(t, s.Cluster, s.Namespace, "high"); ours && (err != nil || p.Status.Reason != "Terminated") {
		t.Errorf("when the machine may go down, the API server has %+v (%v)", p.Status, err)
	}
	ends = s.ended("low") + s.ended("high")
	s.boot()
	s.start("fresh", "")
	for _, name := range []string{"low", "high", "done"} {
		p, err := get(t, s.Cluster, s.Namespace, name)
		if err != nil {
			t.Fatal(err)
		}
		ends += "after the boot " + how(p)
	}
	for _, c := range s.Runtime.State().Running() {
		if c.Subject.Pod != "fresh" {
			t.Errorf("after the boot %s runs", c.Subject.Pod)
		}
	}
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
	return ends
}

// waves has the machine go down while a file in low's volume is open, and the API server is slow to
// learn of high's end.
func (s goingDown) waves(low, high *v1.Pod) {
	t := s.t
	used, err := os.Create(filepath.Join(s.Root, "pods", string(low.UID), filepath.Dir(cacheFile), "used"))
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	known := s.hold("high")
	s.bus.Prepare(true)
	s.ended("low")
	harness.Eventually(t, "a volume in use is not unmounted", func() error {
		if !strings.Contains(s.LogTail(1000), "target is busy") {
			return errors.New("nobody tried")
		}
		return nil
	})
	if s.reported("high") == nil {
		t.Error("high was told to stop before low's volume was unmounted")
	}
	used.Close()
	harness.Eventually(t, "the second wave", func() error { return s.reported("high") })
	if left := s.mounted(low); len(left) > 0 {
		t.Errorf("in the second wave %q are mounted", left)
	}
	harness.Eventually(t, "the shutdown is over", s.recorded)
	if left := s.mounted(high); len(left) > 0 {
		t.Errorf("when the shutdown is over %q are mounted", left)
	}
	if got := s.bus.Locks(); got != 1 {
		t.Errorf("before the API server knows there are %d inhibitors", got)
	}
	close(known)
}

// hold has writes of a pod's status wait until the returned channel is closed.
func (s goingDown) hold(pod string) (known chan struct{}) {
	known = make(chan struct{})
	path := "/api/v1/namespaces/" + s.Namespace + "/pods/" + pod + "/status"
	s.proxy.Instead(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch && r.URL.Path == path {
			select {
			case <-known:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return known
}

// recorded returns nil once the end of a shutdown is in the agent's file.
func (s goingDown) recorded() error {
	raw, err := os.ReadFile(filepath.Join(s.Root, "graceful_node_shutdown_state"))
	if err == nil && strings.Contains(string(raw), `"0001-`) {
		err = fmt.Errorf("it is %s", raw)
	}
	return err
}

// TestNodeShutdownCut: the machine is off before the pods of the API server have ended. After the boot they
// run again, whether they had been told to stop or not, here as under the stock kubelet.
func TestNodeShutdownCut(t *testing.T) {
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) {
			s := newGoingDown(t, agent)
			before := map[string]*v1.Pod{
				"low": s.start("low", ""), "high": s.start("high", "priorityClassName: "+s.class()+","),
			}
			if err := s.Runtime.SetFault(crisim.Fault{Method: "StopContainer", Pod: "low", Hang: true}); err != nil {
				t.Fatal(err)
			}
			s.bus.Prepare(true)
			harness.Eventually(t, "the first wave", func() error { return s.reported("low") })
			s.boot()
			for name, was := range before {
				p := await(t, s.Cluster, s.Namespace, name, func(p *v1.Pod) bool {
					return runs(p) && p.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID
				})
				if p.UID != was.UID || p.Status.Reason != "" {
					t.Errorf("%s is %s, %s", name, p.UID, how(p))
				}
			}
			s.MustRun("delete", "pods", "--all", "--timeout=1m")
		})
	}
}
