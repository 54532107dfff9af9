package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/serving/podresources/watchv1"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// greedy is a Deployment whose pods hold all devices of the node and 7 exclusive CPUs each: new
// ones need what old ones have. The old ones take a while to end.
const greedy = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: greedy}
spec:
  replicas: 8
  strategy: {rollingUpdate: {maxSurge: 2, maxUnavailable: 4}}
  selector: {matchLabels: {app: greedy}}
  template:
    metadata:
      labels: {app: greedy}
      annotations: {sim.numalet.io/main: term=0 term-after=150ms}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: main
        image: registry.test/work:1
        resources: {limits: {cpu: 7, memory: 64Mi, example.com/gpu: 1}}
`

// TestRolloutUnderLoad: repeated rollouts of a Deployment pass devices and CPUs from old pods to
// new ones, while other pods come and go. No device and no CPU ever belongs to two containers, and
// no pod fails.
func TestRolloutUnderLoad(t *testing.T) {
	c := rig.Start(t)
	n := c.Join(harness.New(t), "rollout")
	n.Plugin("example.com/gpu", "--devices=8", "--nodes=0,1")
	n.Start()
	c.AwaitReady(n.Name)
	owned := watchOwners(t, n)
	follow(t, c, "pods", c.Namespace, func(p *v1.Pod, _ bool) {
		if p.Status.Phase == v1.PodFailed && p.DeletionTimestamp == nil {
			owned.found("pod %s has failed: %+v", p.Name, p.Status)
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.RestartCount > 0 {
				owned.found("the container of pod %s was restarted", p.Name)
			}
		}
	})
	c.Apply(greedy)
	c.MustRun("rollout", "status", "deployment/greedy", "--timeout=1m")
	times, stop := churn(t, c, n.Name)
	image := ""
	for i := 2; i <= 3 || times() < 5 && i < 20; i++ {
		image = fmt.Sprintf("registry.test/work:%d", i)
		c.MustRun("set", "image", "deployment/greedy", "main="+image)
		c.MustRun("rollout", "status", "deployment/greedy", "--timeout=2m")
	}
	if stop(); times() < 5 {
		t.Errorf("other pods came and went %d times: not much of a load", times())
	}
	eventually(t, c, strings.TrimSpace(strings.Repeat(image+" ", 8)), "get", "pods",
		"-l", "app=greedy", "-o", "jsonpath={.items[*].spec.containers[0].image}")
	if owned.most() != 8 {
		t.Errorf("at most %d devices were used at once", owned.most())
	}
}

// churn creates and deletes small pods on the node until stop. times returns how often.
func churn(t *testing.T, c rig.Cluster, node string) (times func() int, stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var count atomic.Int32
	var work sync.WaitGroup
	for i := range 2 {
		work.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("small-%d-%d", i, n)
				_, err := c.RunWith(bound(node, name, ""), "apply", "-f", "-")
				if err == nil {
					_, err = c.Run("wait", "--for=condition=Ready", "pod/"+name, "--timeout=1m")
				}
				if err == nil {
					_, err = c.Run("delete", "pod", name, "--timeout=1m")
				}
				if err != nil {
					t.Error(err)
					return
				}
				count.Add(1)
			}
		})
	}
	stop = func() {
		cancel()
		work.Wait()
	}
	t.Cleanup(stop)
	return func() int { return int(count.Load()) }, stop
}

// owners checks at each change of the runtime and each report of the agent that nothing belongs to
// two containers.
type owners struct {
	mu     sync.Mutex // guards what follows
	live   map[string]crisim.Container
	errors []string
	used   int // devices in use at the same time
}

// watchOwners begins to check; a violation fails the test at its end.
func watchOwners(t *testing.T, n rig.Node) *owners {
	o := &owners{live: map[string]crisim.Container{}}
	t.Cleanup(func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, e := range o.errors {
			t.Error(e)
		}
	})
	n.Runtime.Watch(o.changed)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	stream, err := watchv1.NewPodResourcesWatcherClient(dial(t,
		"unix://"+filepath.Join(n.Root, "pod-resources", "kubelet.sock"))).
		Watch(ctx, &watchv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for mirror := (watchv1.Mirror{}); ; {
			change, err := stream.Recv()
			if err == nil {
				if mirror.Apply(change); mirror.Complete {
					err = onlyOnce(mirror.Pods())
				}
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				o.found("podresources: %v", err)
				return
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return o
}

// onlyOnce returns an error if a device or an exclusive CPU belongs to two pods.
func onlyOnce(pods []*watchv1.Pod) error {
	var errs []error
	owner := map[string]string{}
	take := func(what, pod string) {
		if other := owner[what]; other != "" {
			errs = append(errs, fmt.Errorf("%s is of %s and of %s", what, other, pod))
		}
		owner[what] = pod
	}
	for _, p := range pods {
		pod := p.Resources
		for _, c := range pod.Containers {
			for _, id := range c.CpuIds {
				take(fmt.Sprintf("CPU %d", id), pod.Name)
			}
			for _, d := range c.Devices {
				for _, id := range d.DeviceIds {
					take(d.ResourceName+" "+id, pod.Name)
				}
			}
		}
	}
	return errors.Join(errs...)
}

func (o *owners) found(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.foundLocked(format, args...)
}

func (o *owners) foundLocked(format string, args ...any) {
	if len(o.errors) < 20 {
		o.errors = append(o.errors, fmt.Sprintf(format, args...))
	}
}

func (o *owners) most() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.used
}

// changed receives the runtime's changes.
func (o *owners) changed(c crisim.Container) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !c.Running() {
		delete(o.live, c.Subject.ID)
		return
	}
	o.live[c.Subject.ID] = c
	used := 0
	for id, other := range o.live {
		devices := devicesOf(other)
		used += len(devices)
		if id == c.Subject.ID {
			continue
		}
		for _, d := range devices {
			if slices.Contains(devicesOf(c), d) {
				o.foundLocked("%s and %s both have device %s", c.Subject.Pod, other.Subject.Pod, d)
			}
		}
		both := cpusOf(c).Intersection(cpusOf(other))
		if (alone(c) || alone(other)) && !both.IsEmpty() {
			o.foundLocked("%s and %s both run on CPUs %s", c.Subject.Pod, other.Subject.Pod, both)
		}
	}
	o.used = max(o.used, used)
}

func devicesOf(c crisim.Container) []string {
	return strings.FieldsFunc(c.Env()[pluginsim.EnvName("example.com/gpu")],
		func(r rune) bool { return r == ',' })
}

// alone reports whether the container has exclusive CPUs: the pods with devices do.
func alone(c crisim.Container) bool { return len(devicesOf(c)) > 0 }

// cpusOf returns the CPUs on which a container may run: all of them if none are set.
func cpusOf(c crisim.Container) cpuset.CPUSet {
	set, err := cpuset.Parse(cmp.Or(c.CPUs, "0-63"))
	if err != nil {
		panic(err) // the runtime has checked it
	}
	return set
}
