package schedulers

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

const (
	gpu      = "example.com/gpu"
	podCount = 200
)

// shapes are the nodes: a machine, and the NUMA nodes of its GPUs.
var shapes = []struct{ name, machine, gpus string }{
	{"four-numa-nodes", "playground", "0,0,1,1,2,2,3,3"},
	{"two-numa-nodes", "two-socket-smt", "0,0,0,0,1,1,1,1"},
	{"eight-numa-nodes", "eight-node", "0,1,2,3,4,5,6,7"},
	{"one-socket", "epyc-nps4", "0,0,0,0,1,1,2,3"},
}

// wants are the pods' requests, in turns: each fits one NUMA node of some of the machines.
var wants = []string{
	"cpu=4 gpu=1", "cpu=1", "cpu=6", "cpu=1 gpu=1", "cpu=3",
	"cpu=2 gpu=2", "cpu=1", "cpu=5", "cpu=2", "cpu=1",
}

// outcome counts pods by their end.
type outcome struct{ running, pending, topology, otherwise int }

// TestSchedulers sends 200 pods to four nodes of different shape under single-numa-node, once by the
// scheduler of Kubernetes and once by NodeResourceTopologyMatch. Pods that come while there is no room
// wait; with the second no pod is rejected for its topology.
func TestSchedulers(t *testing.T) {
	binary := os.Getenv("NUMALET_SCHEDULER")
	if binary == "" {
		t.Skip("left out: make schedulers runs it, with the scheduler that it builds")
	}
	c := rig.Start(t)
	c.MustRun("apply", "-f", absolute(t, "../cluster/testdata/noderesourcetopology.yaml"))
	c.MustRun("apply", "-f", absolute(t, "../../examples/schedulers/rights.yaml"))
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "scheduler\trunning\twaiting for room\tTopologyAffinityError\trejected otherwise")
	for _, scheduler := range []string{v1.DefaultSchedulerName, aware} {
		t.Run(scheduler, func(t *testing.T) {
			c := rig.Start(t)
			join(t, c)
			if scheduler == aware { // it knows the nodes that are there when it starts
				start(t, c, binary)
			}
			o := send(t, c, scheduler)
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", scheduler, o.running, o.pending, o.topology,
				o.otherwise)
			switch {
			case scheduler == aware && o.topology > 0:
				t.Errorf("%d pods were rejected for their topology", o.topology)
			case scheduler != aware && o.topology == 0:
				t.Error("no pod was rejected for its topology: these pods show nothing")
			}
			if o.running == 0 || o.otherwise > 0 {
				t.Errorf("it came to %+v", o)
			}
		})
	}
	_ = w.Flush()
	fmt.Print(table.String())
}

func absolute(t *testing.T, file string) string {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// aware is the name for pods of the scheduler that reads NodeResourceTopology objects.
const aware = "topology-aware"

// start runs it until the test ends.
func start(t *testing.T, c rig.Cluster, binary string) {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, config := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	if err := c.Kubeconfig(kubeconfig, aware, "system:masters"); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: %q}
profiles:
- schedulerName: %s
  plugins: {multiPoint: {enabled: [{name: NodeResourceTopologyMatch}]}}
  pluginConfig:
  - name: NodeResourceTopologyMatch
    args:
      scoringStrategy: {type: LeastAllocated}
      cacheResyncPeriodSeconds: 1
      cache: {informerMode: Shared}
`, kubeconfig, aware)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "--config="+config, "--secure-port=0", "-v=2")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		log.Close()
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("the scheduler's log ends so:\n%s", text[max(0, len(text)-4000):])
		}
	})
}

// join starts the nodes, which publish what they have.
func join(t *testing.T, c rig.Cluster) {
	t.Helper()
	for _, shape := range shapes {
		agent := harness.New(t)
		agent.Args = append(agent.Args, "--topology-from=fixture:"+shape.machine)
		agent.Settings["topologyManagerPolicy"] = "single-numa-node"
		agent.Settings["maxPods"] = podCount
		n := c.Join(agent, shape.name)
		n.Plugin(gpu, "--devices="+fmt.Sprint(strings.Count(shape.gpus, ",")+1),
			"--nodes="+shape.gpus)
		n.Start()
		c.AwaitReady(n.Name)
		harness.Eventually(t, n.Name+" says what it has", func() error {
			_, err := c.Run("get", "node-res-topo", n.Name, "-o", "name")
			return err
		})
	}
}

// send lets the scheduler place the pods, and returns the outcome.
func send(t *testing.T, c rig.Cluster, scheduler string) (out outcome) {
	t.Helper()
	pods := c.Client.CoreV1().Pods(c.Namespace)
	for i := range podCount {
		if _, err := pods.Create(context.Background(), pod(i, scheduler),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	last, since := outcome{}, time.Now()
	harness.Eventually(t, "all pods are decided on", func() error {
		list, err := pods.List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		undecided := 0
		out, undecided = count(list.Items)
		if out != last {
			last, since = out, time.Now()
		}
		if undecided > 0 || time.Since(since) < 15*time.Second {
			return fmt.Errorf("%d are not; so far %+v", undecided, out)
		}
		return nil
	})
	if testing.Verbose() {
		fmt.Printf("%s: %+v\n", scheduler, out)
	}
	return out
}

func pod(i int, scheduler string) *v1.Pod {
	main := podtest.Container("main memory=16Mi " + wants[i%len(wants)])
	main.Image = "registry.test/work:1"
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%03d", i)},
		Spec: v1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: v1.RestartPolicyNever,
			TerminationGracePeriodSeconds: new(int64), Containers: []v1.Container{main},
		},
	}
}

// count returns the pods' outcome, and how many are undecided.
func count(pods []v1.Pod) (out outcome, undecided int) {
	for _, p := range pods {
		switch {
		case p.Status.Reason == "TopologyAffinityError":
			out.topology++
		case p.Status.Phase == v1.PodFailed:
			out.otherwise++
		case p.Status.Phase == v1.PodRunning:
			out.running++
		case isUnschedulable(p):
			out.pending++
		default:
			undecided++
		}
	}
	return out, undecided
}

func isUnschedulable(p v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Reason == v1.PodReasonUnschedulable {
			return true
		}
	}
	return false
}
