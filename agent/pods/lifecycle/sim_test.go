package lifecycle_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/pods/lifecycle"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/cmd/numalet-lab/crisim/simtest"
	"github.com/numalet/numalet/cri"
)

// node is a PLEG on a simulated runtime.
type node struct {
	*lifecycle.PLEG
	t      *testing.T
	server *crisim.Server
	client *cri.Client
	image  string
}

func startNode(t *testing.T, mode crisim.EventMode) *node {
	t.Helper()
	server := simtest.Start(t, crisim.Config{Images: []string{"sim.local/run"}})
	if err := server.SetEvents(mode); err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, server: server, client: simtest.Connect(t, server), image: "sim.local/run"}
	n.observe(lifecycle.Config{Client: n.client, RelistPeriod: 50 * time.Millisecond})
	return n
}

func (n *node) observe(cfg lifecycle.Config) {
	n.t.Helper()
	o, err := lifecycle.New(cfg)
	if err != nil {
		n.t.Fatal(err)
	}
	n.PLEG = o
	ctx, cancel := context.WithCancel(klog.NewContext(n.t.Context(), klog.New(nil)))
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	n.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			n.t.Errorf("Run: %v", err)
		}
	})
}

// run starts a pod with one container that follows the script.
func (n *node) run(uid, script string) {
	n.t.Helper()
	labels := map[string]string{
		cri.LabelPodName: uid, cri.LabelPodNamespace: "default", cri.LabelPodUID: uid,
	}
	ctx, runtime := n.t.Context(), n.client.Runtime()
	sandbox := &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid},
		Labels:      labels,
		Annotations: map[string]string{crisim.AnnotationPrefix + "c": script},
	}
	pod, err := runtime.RunPodSandbox(ctx, sandbox, "")
	if err != nil {
		n.t.Fatal(err)
	}
	container, err := runtime.CreateContainer(ctx, pod, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"},
		Image:    &runtimeapi.ImageSpec{Image: n.image},
		Labels:   labels,
	}, sandbox)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := runtime.StartContainer(ctx, container); err != nil {
		n.t.Fatal(err)
	}
}

// until follows changes until want accepts the pod.
func (n *node) until(uid types.UID, what string, want func(cri.Pod) bool) {
	n.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		if pod, _ := n.Get(uid); want(pod) {
			return
		}
		select {
		case <-n.Changes():
		case <-deadline:
			pod, _ := n.Get(uid)
			n.t.Fatalf("pod %s is never %s: %+v", uid, what, pod)
		}
	}
}

func exitedWith(code int32) func(cri.Pod) bool {
	return func(p cri.Pod) bool {
		c, ok := p.Container("c")
		return ok && c.State == cri.ContainerExited && c.Exit.Code == code
	}
}

func TestShortLivedContainersAreSeen(t *testing.T) {
	for _, mode := range []crisim.EventMode{
		crisim.EventsOn, crisim.EventsSilent, crisim.EventsUnimplemented,
	} {
		t.Run(string(mode), func(t *testing.T) {
			n := startNode(t, mode)
			for i := range 20 {
				n.run(fmt.Sprintf("p%d", i), "exit=7 after=1ms")
			}
			for i := range 20 {
				n.until(types.UID(fmt.Sprintf("p%d", i)), "exited with 7", exitedWith(7))
			}
		})
	}
}

func TestExitsOutlastLostStreams(t *testing.T) {
	n := startNode(t, crisim.EventsOn)
	for i := range 5 {
		uid := fmt.Sprintf("p%d", i)
		n.run(uid, "")
		n.server.DropEvents()
		if err := n.server.Exit(uid+"/c", crisim.Exit{Code: 9}); err != nil {
			t.Fatal(err)
		}
		n.until(types.UID(uid), "exited with 9", exitedWith(9))
	}
}

func TestRereadSeesWhatWasDoneBefore(t *testing.T) {
	n := startNode(t, crisim.EventsOn)
	n.run("p", "")
	for i := range 20 {
		pod, err := n.Reread(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		c, _ := pod.Container("c")
		cpus := fmt.Sprintf("0-%d", i+1)
		err = n.client.Runtime().UpdateContainerResources(t.Context(), c.ID,
			&runtimeapi.ContainerResources{
				Linux: &runtimeapi.LinuxContainerResources{CpusetCpus: cpus},
			})
		if err != nil {
			t.Fatal(err)
		}
		if pod, err = n.Reread(t.Context(), "p"); err != nil {
			t.Fatal(err)
		}
		if c, _ := pod.Container("c"); c.Applied.CPUs != cpus {
			t.Fatalf("cpuset is %q right after it was set to %q", c.Applied.CPUs, cpus)
		}
	}
}

func TestSandboxThatDies(t *testing.T) {
	n := startNode(t, crisim.EventsOn)
	n.run("p", "term=ignore")
	n.until("p", "running", func(p cri.Pod) bool {
		return p.Running() && len(p.Sandboxes[0].IPs) == 1
	})
	if err := n.server.KillSandbox("default/p"); err != nil {
		t.Fatal(err)
	}
	n.until("p", "dead", func(p cri.Pod) bool {
		return !p.Running() && exitedWith(137)(p) && !p.Sandboxes[0].Ready
	})
}

func TestHungStatusOfOnePod(t *testing.T) {
	n := startNode(t, crisim.EventsOn)
	err := n.server.SetFault(crisim.Fault{Method: "ContainerStatus", Pod: "hung", Hang: true})
	if err != nil {
		t.Fatal(err)
	}
	n.run("hung", "exit=1")
	n.run("fine", "exit=2")
	n.until("fine", "exited with 2", exitedWith(2))
	n.server.ClearFaults()
	n.until("hung", "exited with 1", exitedWith(1))
}
