package test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/utils/cpuset"

	"github.com/numalet/numalet/agent/placement/allocation/handover"
	"github.com/numalet/numalet/agent/placement/allocation/store"
	"github.com/numalet/numalet/agent/pods/source"
	pluginsim "github.com/numalet/numalet/cmd/numalet-lab/sim"
	cpucheckpoint "github.com/numalet/numalet/cpumanager/checkpoint"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/deviceplugin/checkpoint"
	"github.com/numalet/numalet/test/harness"
	"github.com/numalet/numalet/topology/podspec"
)

// byKubelet runs the pod as a kubelet would have left it: with the kubelet's labels, on these CPUs,
// and without a record of its assignment in the labels.
func byKubelet(t testing.TB, n *harness.Node, pod *v1.Pod, cpus string,
	answer *v1beta1.ContainerAllocateResponse) {
	t.Helper()
	ctx := context.Background()
	client, err := cri.Connect(ctx,
		cri.Config{RuntimeEndpoint: n.Endpoint, Timeout: harness.Patience})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	sandbox, err := cri.SandboxConfig(pod,
		cri.SandboxOptions{LogsDir: filepath.Join(n.Dir, "logs")})
	if err != nil {
		t.Fatal(err)
	}
	id, err := client.Runtime().RunPodSandbox(ctx, sandbox, "")
	if err != nil {
		t.Fatal(err)
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		image, err := client.Images().PullImage(
			ctx, &runtimeapi.ImageSpec{Image: c.Image}, nil, sandbox)
		if err != nil {
			t.Fatal(err)
		}
		config, err := cri.ContainerConfig(pod, c, cri.ContainerOptions{
			Image:   cri.ImageRef{Ref: image},
			Devices: []*v1beta1.ContainerAllocateResponse{answer},
			Resources: cri.ContainerResources(pod, c, cri.ResourceOptions{},
				cri.Placement{CPUs: cpus, Exclusive: true}),
		})
		if err != nil {
			t.Fatal(err)
		}
		ctr, err := client.Runtime().CreateContainer(ctx, id, config, sandbox)
		if err == nil {
			err = client.Runtime().StartContainer(ctx, ctr)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// kubeletFiles writes what the kubelet would have recorded about the pod's container main.
func kubeletFiles(t testing.TB, n *harness.Node, uid, cpuList string, ids checkpoint.DevicesPerNUMA,
	answer *v1beta1.ContainerAllocateResponse) {
	t.Helper()
	own := cpus(t, cpuList)
	state, err := cpucheckpoint.Encode(cpucheckpoint.State{
		Policy: "static", Default: cpus(t, "0-63").Difference(own),
		Entries: map[string]map[string]cpuset.CPUSet{uid: {"main": own}},
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := checkpoint.EncodeResponse(answer)
	if err != nil {
		t.Fatal(err)
	}
	devices, err := checkpoint.Encode([]checkpoint.PodDevicesEntry{{
		PodUID: uid, ContainerName: "main", ResourceName: "example.com/gpu",
		DeviceIDs: ids, AllocResp: raw,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(n.Root, cpucheckpoint.FileName), string(state))
	writeFile(t, filepath.Join(n.Root, "device-plugins", checkpoint.FileName), string(devices))
}

// TestSwitchOver: a pod that a kubelet started stays unchanged when the agent takes over the node,
// and the kubelet finds it in its own files when it gets the node back.
func TestSwitchOver(t *testing.T) {
	t.Run("with metadata.uid", func(t *testing.T) {
		const uid = "3b1c7c0e-5b0e-4f0e-9d55-6c1f4a0f2c11"
		switchOver(t, uid, "metadata:\n  uid: "+uid+"\n")
	})
	t.Run("with a UID of the kubelet's making", func(t *testing.T) {
		switchOver(t, "c3a5b0d1c3a5b0d1c3a5b0d1c3a5b0d1", "metadata:\n")
	})
}

// switchOver runs a pod with the uid, whose manifest has metadata.
func switchOver(t *testing.T, uid, metadata string) {
	t.Parallel()
	n := harness.New(t)
	eager(n)
	const ownCPUs, device = "37-38", "gpu-5"
	// A first agent, which does not know the kubelet's pod, applies the defaults to the manifest.
	n.Start()
	n.Pod("own", strings.Replace(limited("own", "cpu: 2, memory: 1Gi, example.com/gpu: 1"),
		"metadata:\n", metadata, 1))
	pod := awaitPod(n, "own-node", func(v1.Pod) error { return nil })
	n.Kill()
	if got := n.Runtime.State(); len(got.Sandboxes) > 0 {
		t.Fatalf("the pod, whose plugin is not there, has run: %+v", got.Sandboxes)
	}
	if err := os.Remove(filepath.Join(n.Root, store.FileName)); err != nil &&
		!os.IsNotExist(err) {
		t.Fatal(err)
	}

	pod.UID, pod.Status = types.UID(uid), v1.PodStatus{}
	pod.Annotations[podspec.AnnotationHash] = uid
	delete(pod.Annotations, source.AnnotationManifest) // which a kubelet does not set
	answer := &v1beta1.ContainerAllocateResponse{Envs: map[string]string{"GPU": device}}
	byKubelet(t, n, &pod, ownCPUs, answer)
	kubeletFiles(t, n, uid, ownCPUs, checkpoint.DevicesPerNUMA{2: {device}}, answer)
	since := lastCall(n)

	n.Start()
	plugin, _ := n.Plugin("example.com/gpu", "--devices=8", "--nodes=0-3")
	n.AwaitPhase("own-node", v1.PodRunning)
	n.Pod("new", limited("new", "cpu: 2, memory: 1Gi"))
	n.AwaitPhase("new-node", v1.PodRunning)
	untouched(t, n, since, "new-node")
	row := placementOf(t, n, "own-node/main")
	got := row.Devices["example.com/gpu"]
	if row.CPUs != ownCPUs || !slices.Equal(got, []string{device}) {
		t.Errorf("taken over as %+v, want CPUs %s and device %s", row, ownCPUs, device)
	}
	state, err := plugin.State(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if calls := state.Calls[pluginsim.Allocate]; calls != 0 {
		t.Errorf("the plugin was asked to allocate %d times", calls)
	}
	exportedAs(t, n, uid, ownCPUs, device)

	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
	left := kubeletsView(t, n)
	if len(left.CPUs.Entries) != 1 || left.CPUs.Entries[uid]["main"].String() != ownCPUs ||
		!left.CPUs.Default.Equals(cpus(t, "0-63").Difference(cpus(t, ownCPUs))) {
		t.Errorf("a kubelet, which does not find the new pod, is left %+v", left.CPUs)
	}
	if len(left.Devices) != 1 || left.Devices[0].PodUID != uid {
		t.Errorf("a kubelet is left the devices %+v", left.Devices)
	}
	since = lastCall(n)
	n.Start()
	n.AwaitPhase("own-node", v1.PodRunning)
	n.AwaitPhase("new-node", v1.PodRunning)
	untouched(t, n, since, "")
	if row := placementOf(t, n, "own-node/main"); row.CPUs != ownCPUs {
		t.Errorf("taken over once more with CPUs %s, want %s", row.CPUs, ownCPUs)
	}
	exportedAs(t, n, uid, ownCPUs, device)
}

func kubeletsView(t testing.TB, n *harness.Node) handover.Kubelet {
	t.Helper()
	view, err := handover.ReadKubelet(
		n.Root, filepath.Join(n.Root, "device-plugins"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// exportedAs waits until the kubelet's files have the pod and another one, each with its own CPUs
// and devices.
func exportedAs(t testing.TB, n *harness.Node, uid, cpuList, device string) {
	t.Helper()
	n.Eventually("the kubelet's files have both pods", func() error {
		kubelet, err := handover.ReadKubelet(
			n.Root, filepath.Join(n.Root, "device-plugins"), time.Now())
		if err != nil {
			return err
		}
		taken := cpuset.New()
		for _, containers := range kubelet.CPUs.Entries {
			taken = taken.Union(containers["main"])
		}
		if kubelet.CPUs.Entries[uid]["main"].String() != cpuList || taken.Size() != 4 ||
			!kubelet.CPUs.Default.Equals(cpus(t, "0-63").Difference(taken)) {
			return fmt.Errorf("CPUs: %+v", kubelet.CPUs)
		}
		if len(kubelet.Devices) != 1 || kubelet.Devices[0].PodUID != uid ||
			!slices.Equal(kubelet.Devices[0].DeviceIDs[2], []string{device}) {
			return fmt.Errorf("devices: %+v", kubelet.Devices)
		}
		return nil
	})
}
