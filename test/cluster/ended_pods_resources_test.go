package cluster_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// stopDelays returns how long the runtime takes to stop a sandbox; NUMALET_ROOM=all adds more.
func stopDelays() []time.Duration {
	if os.Getenv("NUMALET_ROOM") != "all" {
		return []time.Duration{10 * time.Millisecond, 300 * time.Millisecond}
	}
	return []time.Duration{
		time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond,
		time.Second, 3 * time.Second,
	}
}

// roomy is a node that the scheduler fills with pods of one kind.
type roomy struct {
	rig.Cluster
	name     string
	runtime  *crisim.Server
	at       int    // how many pods fit at a time
	template string // a pod's spec, with its command to be filled in

	mu      sync.Mutex // guards what follows
	refused []string
	waited  int
}

// TestResourcesOfEndedPods: the scheduler gives the resources of pods that have ended by themselves
// to the next ones while the runtime still stops their sandboxes. No pod is rejected, whichever
// resource is short.
func TestResourcesOfEndedPods(t *testing.T) {
	for _, kind := range []struct {
		name, resources string
		at              int
	}{
		{"port", "ports: [{containerPort: 80, hostPort: 8080}], resources: {}", 1},
		{"memory", "resources: {limits: {cpu: 1, memory: %d}}", 4},
		{"exclusive", "resources: {limits: {cpu: %d, memory: 16Mi}}", 4},
		{"shared", "resources: {requests: {cpu: %dm}}", 12},
		{"places", "resources: {}", 4},
	} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			c := rig.Start(t)
			agent := harness.New(t)
			if kind.name == "places" {
				agent.Settings["maxPods"] = kind.at
			}
			n := c.Join(agent, "room-"+kind.name)
			n.Start()
			c.AwaitReady(n.Name)
			r := &roomy{Cluster: c, name: n.Name, runtime: agent.Runtime, at: kind.at}
			r.template = r.specOf(t, kind.resources)
			follow(t, c, "pods", c.Namespace, r.saw)
			for i, delay := range stopDelays() {
				r.wave(t, fmt.Sprint("w", i), delay)
			}
			r.patched(t, time.Second)
			r.job(t, 3*time.Second)
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.refused) > 0 {
				t.Errorf("refused were:\n%s", strings.Join(r.refused, "\n"))
			}
			if r.waited == 0 {
				t.Error("no pod waited for room: the test does not test what it is for")
			}
		})
	}
}

// specOf returns the spec of pods of which the node has room for r.at.
func (r *roomy) specOf(t *testing.T, resources string) string {
	t.Helper()
	node, err := r.Client.CoreV1().Nodes().Get(t.Context(), r.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has, at := node.Status.Allocatable, int64(r.at)
	switch {
	case strings.Contains(resources, "memory: %d"):
		resources = fmt.Sprintf(resources, has.Memory().Value()/at)
	case strings.Contains(resources, "cpu: %dm"):
		resources = fmt.Sprintf(resources, has.Cpu().MilliValue()/at)
	case strings.Contains(resources, "%d"):
		resources = fmt.Sprintf(resources, has.Cpu().Value()/at)
	}
	return fmt.Sprintf(`{restartPolicy: Never, automountServiceAccountToken: false,
 nodeSelector: {kubernetes.io/hostname: %s}, terminationGracePeriodSeconds: 1,
 containers: [{name: main, image: sim.local/app, command: [sh, -c, "sleep 3; exit CODE"], %s}]}`,
		r.name, resources)
}

func (r *roomy) saw(p *v1.Pod, gone bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case gone:
	case p.Status.Phase == v1.PodFailed && p.Status.Reason != "":
		r.refused = append(r.refused, p.Name+": "+p.Status.Reason+": "+p.Status.Message)
	case p.Status.Phase == v1.PodPending && p.Status.Reason != "":
		r.waited++
	}
}

func (r *roomy) delay(t *testing.T, delay time.Duration) {
	t.Helper()
	r.runtime.ClearFaults()
	err := r.runtime.SetFault(crisim.Fault{
		Method: "StopPodSandbox", Delay: metav1.Duration{Duration: delay},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// start makes as many pods as there is room for.
func (r *roomy) start(name string, spec func(i int) string) {
	var all []string
	for i := range r.at {
		all = append(all, fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s-%d}, spec: %s}",
			name, i, spec(i)))
	}
	r.Apply(strings.Join(all, "\n---\n"))
}

// wave fills the node twice: the second half is bound once the first has ended; every second pod
// fails.
func (r *roomy) wave(t *testing.T, name string, delay time.Duration) {
	t.Helper()
	r.delay(t, delay)
	half := func(which string, is func(*v1.Pod) bool) {
		t.Helper()
		r.start(name+"-"+which, func(i int) string {
			return strings.Replace(r.template, "CODE", fmt.Sprint(i%2), 1)
		})
		for i := range r.at {
			await(t, r.Cluster, r.Namespace, fmt.Sprintf("%s-%s-%d", name, which, i), is)
		}
	}
	half("first", func(p *v1.Pod) bool { return p.Status.Phase != v1.PodPending })
	half("second", func(p *v1.Pod) bool { return ended(*p) })
	r.MustRun("delete", "pods", "--all", "--timeout=1m")
}

// patched lets another client write that running pods have failed.
func (r *roomy) patched(t *testing.T, delay time.Duration) {
	t.Helper()
	r.delay(t, delay)
	lasting := strings.Replace(r.template, "sleep 3; exit CODE", "sleep 600", 1)
	for _, half := range []string{"said", "next"} {
		r.start(half, func(int) string { return lasting })
		for i := range r.at {
			name := fmt.Sprintf("%s-%d", half, i)
			await(t, r.Cluster, r.Namespace, name, func(p *v1.Pod) bool {
				return p.Status.Phase == v1.PodRunning || half == "next" && len(p.Status.Conditions) > 0
			})
		}
	}
	for i := range r.at {
		r.MustRun("patch", "pod", fmt.Sprint("said-", i), "--subresource=status", "-p",
			`{"status":{"phase":"Failed"}}`)
	}
	for i := range r.at {
		await(t, r.Cluster, r.Namespace, fmt.Sprint("next-", i), func(p *v1.Pod) bool {
			return p.Status.Phase == v1.PodRunning || ended(*p)
		})
	}
	r.MustRun("delete", "pods", "--all", "--timeout=1m")
}

// job lets a controller make the next pods.
func (r *roomy) job(t *testing.T, delay time.Duration) {
	t.Helper()
	r.delay(t, delay)
	r.Apply(fmt.Sprintf(`{apiVersion: batch/v1, kind: Job, metadata: {name: job}, spec: {
 parallelism: %d, completions: %d, template: {spec: %s}}}`,
		r.at, 2*r.at, strings.Replace(r.template, "CODE", "0", 1)))
	eventually(t, r.Cluster, fmt.Sprint(2*r.at), "get", "job", "job", "-o",
		"jsonpath={.status.succeeded}")
}
