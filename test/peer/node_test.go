package peer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// node is the agent that is being measured.
type node struct {
	rig.Node
	t        *testing.T
	cluster  rig.Cluster
	column   column
	settings settings

	mu    sync.Mutex // guards what follows
	bound map[string]time.Time
	ready map[string]time.Time
	ended map[string]time.Time // with a status that says so
	gone  map[string]time.Time
	exit  map[string]time.Time // of their containers, by the runtime
}

func (n *node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// pod returns a pod that is bound to the node, so that the scheduler takes no time.
func (n *node) pod(name string, args ...string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{
			NodeName: n.Name, RestartPolicy: v1.RestartPolicyNever,
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			Containers: []v1.Container{
				{Name: "main", Image: containerd.WorkImage, Args: args},
			},
		},
	}
}

// create makes a pod and says when.
func (n *node) create(pod *v1.Pod) time.Time {
	n.t.Helper()
	began := time.Now()
	_, err := n.cluster.Client.CoreV1().Pods(n.cluster.Namespace).Create(context.Background(), pod,
		metav1.CreateOptions{})
	if err != nil {
		n.t.Error(err)
	}
	return began
}

// remove deletes a pod and says when.
func (n *node) remove(name string) time.Time {
	n.t.Helper()
	began := time.Now()
	err := n.cluster.Client.CoreV1().Pods(n.cluster.Namespace).Delete(context.Background(), name,
		metav1.DeleteOptions{})
	if err != nil {
		n.t.Error(err)
	}
	return began
}

// when waits for the time at which something became of a pod, a field of n.
func (n *node) when(what string, of map[string]time.Time, pod string) time.Time {
	n.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for time.Now().Before(deadline) {
		n.mu.Lock()
		at, is := of[pod]
		n.mu.Unlock()
		if is {
			return at
		}
		time.Sleep(5 * time.Millisecond)
	}
	n.t.Fatalf("pod %s is not %s", pod, what)
	return time.Time{}
}

// oneAtATime starts and stops pods, one after the other. What they take beside the calls of the
// runtime that they cannot do without is the agent's own time, and the API server's.
func (n *node) oneAtATime() {
	before := n.requests()
	var start, stop, ownStart, ownStop []float64
	for i := range n.settings.singles {
		name := fmt.Sprintf("single%d", i)
		idle := n.inRuntime("run_podsandbox", "create_container", "start_container")
		began := n.create(n.pod(name))
		took := ms(n.when("ready", n.ready, name).Sub(began))
		start = append(start, took)
		time.Sleep(200 * time.Millisecond) // for what the agent writes behind
		ownStart = append(ownStart, took-ms(idle()))

		idle = n.inRuntime("stop_container", "stop_podsandbox")
		began = n.remove(name)
		took = ms(n.when("gone", n.gone, name).Sub(began))
		stop = append(stop, took)
		ownStop = append(ownStop, took-ms(idle()))
	}
	n.column.add("start_p50_ms", median(start))
	n.column.add("start_own_p50_ms", median(ownStart))
	n.column.add("stop_p50_ms", median(stop))
	n.column.add("stop_own_p50_ms", median(ownStop))
	made := n.requests().since(before)
	n.column.add("api_requests_per_pod", made.ofPods()/float64(n.settings.singles))
	for verb, count := range made.podVerbs() {
		n.column.add("api_requests_per_pod_"+verb, count/float64(n.settings.singles))
	}
}

// exits lets pods end by themselves.
func (n *node) exits() {
	var took []float64
	for i := range n.settings.singles {
		name := fmt.Sprintf("exit%d", i)
		n.create(n.pod(name, "--exit=0", "--after=500ms"))
		reported := n.when("ended", n.ended, name)
		took = append(took, ms(reported.Sub(n.when("exited", n.exit, name))))
		n.remove(name)
		n.when("gone", n.gone, name)
	}
	n.column.add("exit_to_status_p50_ms", median(took))
}

// atOnce starts pods at once, lets them run, with and without somebody who asks for all metrics,
// and stops them at once.
func (n *node) atOnce() {
	names := make([]string, n.settings.burst)
	for i := range names {
		names[i] = fmt.Sprintf("burst%d", i)
	}
	profiled := n.profile("burst.cpu", "profile", 15*time.Second)
	cpu, written := n.CPU(), n.etcdReceived()
	n.phase("burst60", "running", names, n.ready, func(name string) { n.create(n.pod(name)) })
	time.Sleep(5 * time.Second) // for what comes behind
	n.column.add("burst_cpu_s", (n.CPU() - cpu).Seconds())
	n.column.add("burst_etcd_kib", (n.etcdReceived()-written)/1024)
	profiled()

	idle := n.settings.idle
	before, cpu := n.requests(), n.CPU()
	time.Sleep(idle)
	n.column.add("idle_cpu_percent", percent(n.CPU()-cpu, idle))
	n.column.add("api_requests_idle_per_min",
		n.requests().since(before).all()/idle.Minutes())
	n.column.add("rss_mib", harness.MemoryMiB(n.t, n.PID(), "VmRSS"))
	n.column.add("rss_of_files_mib", harness.MemoryMiB(n.t, n.PID(), "RssFile"))
	n.profile("idle.heap", "heap", 0)()

	cpu = n.CPU()
	n.scrape(idle)
	n.column.add("scraped_cpu_percent", percent(n.CPU()-cpu, idle))

	n.phase("burst60", "gone", names, n.gone, func(name string) { n.remove(name) })
}

// phase does something to all pods at once, and measures when the first, half of them and all have
// come to where they are to be.
func (n *node) phase(of, what string, names []string, at map[string]time.Time, do func(string)) {
	n.t.Helper()
	began := time.Now()
	var all sync.WaitGroup
	for _, name := range names {
		all.Go(func() { do(name) })
	}
	all.Wait()
	var took []float64
	for _, name := range names {
		took = append(took, n.when(what, at, name).Sub(began).Seconds())
	}
	slices.Sort(took)
	until := what + "_"
	if what == "running" { // the columns are read under these names
		until = ""
	}
	n.column.add(of+"_first_"+until+"s", took[0])
	n.column.add(of+"_half_"+until+"s", took[len(took)/2])
	n.column.add(of+"_"+what+"_s", took[len(took)-1])
}

func ms(d time.Duration) float64 { return float64(d) / 1e6 }

func percent(part, of time.Duration) float64 { return 100 * part.Seconds() / of.Seconds() }
