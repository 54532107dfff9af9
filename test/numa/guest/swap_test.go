package guest_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/harness"
)

// TestSwapNode: the cgroups of containers are given the share of the machine's swap space that
// KEP-2400 says, or none, by numalet and by the stock kubelet alike. Static pods are critical and
// do not swap, so the machine is a node of the control plane that its host runs. The agents do all
// else that they can do with cgroups as well, and its values are compared. Both leave huge pages out of the
// memory that is available, unless the gate for that is off.
func TestSwapNode(t *testing.T) {
	d := newRuntime(t)
	addSwap(t)
	addNetwork(t)
	c := newClient(t)
	kubelet := []string{"sh", "-c", inCgroup, "sh", filepath.Join(dir, "kubelet")}
	n := harness.NewOn(t, d.Endpoint())
	n.Args = append(n.Args, "--kubeconfig="+filepath.Join(dir, "node.kubeconfig"))
	for name, value := range map[string]any{
		"cpuManagerPolicy": "none", "topologyManagerPolicy": "none", "cgroupsPerQOS": true,
		"port":           harness.FreePort(t),
		"authentication": map[string]any{"webhook": map[string]any{"enabled": false}},
		"authorization":  map[string]any{"mode": "AlwaysAllow"},
		"evictionHard": map[string]string{ // the disk is small
			"memory.available": "1Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
			"imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
	} {
		n.Settings[name] = value
	}
	useCgroups(t, n)
	var numalet map[string]string
	for _, step := range []struct {
		name, behaviour string
		program         []string
		check           func(t *testing.T)
	}{
		{"numalet", "LimitedSwap", nil, func(t *testing.T) {
			testDaemons(t, n.As(t), true)
			testHugePagesCount(t, n.As(t), true)
			awaitRequests(t)
			numalet = c.values(t, kinds())
			testLostCgroup(t, c, "is gone")
		}},
		{"numalet", "NoSwap", nil, func(t *testing.T) { testHugePagesCount(t, n.As(t), false) }},
		{"kubelet", "LimitedSwap", kubelet, func(t *testing.T) {
			testDaemons(t, n.As(t), false)
			testHugePagesCount(t, n.As(t), true)
			awaitRequests(t)
			compareCgroups(t, numalet, c.values(t, kinds()))
			testLostCgroup(t, c, "Stopping container")
		}},
	} {
		n.Program = step.program
		n.Settings["memorySwap"] = map[string]string{"swapBehavior": step.behaviour}
		n.Settings["featureGates"] = map[string]bool{ // the first is of useCgroups
			"QOSReserved": true, "HugepageAwareEviction": step.behaviour == "LimitedSwap",
		}
		n.Start()
		t.Run(step.name+" "+step.behaviour, func(t *testing.T) {
			testSwap(t, c, step.behaviour == "LimitedSwap", step.check)
		})
		n.Kill()
	}
}

// inCgroup starts a program in a cgroup, as systemd does: a kubelet that is in the root takes the
// kernel for one that does not limit swap.
const inCgroup = `mkdir -p ` + cgroupDir + `/kubelet && echo $$ >` + cgroupDir +
	`/kubelet/cgroup.procs && exec "$@"`

// swaps is a container and what it asks of memory. share is whether it may have some of the swap
// space.
type swaps struct {
	name                string
	request, limit, cpu string
	critical, share     bool
}

// kinds are the pods of the test.
func kinds() []swaps {
	return []swaps{
		{name: "burstable", request: "256Mi", share: true},
		{name: "with-limit", request: "96Mi", limit: "192Mi", share: true},
		{name: "all-of-it", request: "64Mi", limit: "64Mi"},
		{name: "no-request", cpu: "100m"},
		{name: "critical", request: "96Mi", limit: "192Mi", critical: true},
		{name: "guaranteed", request: "64Mi", limit: "64Mi", cpu: "100m"},
		{name: "best-effort"},
	}
}

// testSwap runs a pod of each kind, and looks at its cgroup; check looks at more.
func testSwap(t *testing.T, c client, limited bool, check func(*testing.T)) {
	c.clear(t)
	kinds := kinds()
	for _, kind := range kinds {
		c.create(t, kind)
	}
	for _, kind := range kinds {
		want := 0
		if limited && kind.share {
			want = shareOf(t, kind.request)
		}
		got := saidNumber(t, c.cgroup(t, kind.name), "memory.swap.max")
		row(t, "%s: memory.swap.max %d", kind.name, got)
		if got != want {
			t.Errorf("%s: memory.swap.max is %d, want %d", kind.name, got, want)
		}
		if limited && kind.share && got == 0 {
			t.Errorf("%s: its share is nothing, which shows nothing", kind.name)
		}
	}
	check(t)
	c.clear(t)
}

// shareOf returns what a container with a request for memory may swap: the request's share of the
// machine's memory, of its swap space, in whole pages.
func shareOf(t *testing.T, request string) int {
	t.Helper()
	memory, swap := meminfo(t, "MemTotal:"), meminfo(t, "SwapTotal:")
	asked := resource.MustParse(request)
	share := float64(asked.Value()) / float64(memory)
	page := os.Getpagesize()
	return int(share*float64(swap)) / page * page
}

// meminfo returns a line of /proc/meminfo in bytes.
func meminfo(t *testing.T, line string) (kib int) {
	t.Helper()
	_, after, _ := strings.Cut("\n"+said(t, "/proc/meminfo"), "\n"+line)
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatalf("%s in /proc/meminfo: %v", line, err)
	}
	return kib << 10
}

// client is the API server with the namespace of the test.
type client struct {
	kubernetes.Interface
	namespace string
}

func newClient(t *testing.T) client {
	t.Helper()
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: filepath.Join(dir, "admin.kubeconfig")}, nil)
	namespace, _, err := config.Namespace()
	if err != nil {
		t.Fatal(err)
	}
	rest, err := config.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the API server answers", func() error {
		_, err := c.Discovery().ServerVersion()
		return err
	})
	return client{c, namespace}
}

func (c client) create(t *testing.T, kind swaps) {
	t.Helper()
	container := v1.Container{Name: "main", Image: containerd.WorkImage, Args: []string{"--print"},
		Resources: v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}}
	set := func(in v1.ResourceList, name v1.ResourceName, amount string) {
		if amount != "" {
			in[name] = resource.MustParse(amount)
		}
	}
	set(container.Resources.Requests, v1.ResourceMemory, kind.request)
	set(container.Resources.Limits, v1.ResourceMemory, kind.limit)
	set(container.Resources.Requests, v1.ResourceCPU, kind.cpu)
	if kind.name == "guaranteed" {
		set(container.Resources.Limits, v1.ResourceCPU, kind.cpu)
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: kind.name},
		Spec: v1.PodSpec{
			NodeName: "node", HostNetwork: true, // one of its own takes the emulator seconds
			AutomountServiceAccountToken: ptr.To(false), Containers: []v1.Container{container},
			Tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		},
	}
	if kind.critical {
		pod.Spec.PriorityClassName = "system-node-critical"
	}
	_, err := c.CoreV1().Pods(c.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// cgroup returns the folder of a pod's container once it runs.
func (c client) cgroup(t *testing.T, pod string) (folder string) {
	t.Helper()
	harness.Eventually(t, "the container of "+pod+" runs", func() error {
		is, err := c.CoreV1().Pods(c.namespace).Get(t.Context(), pod, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if s := is.Status; len(s.ContainerStatuses) == 0 || s.ContainerStatuses[0].State.Running == nil {
			return fmt.Errorf("its pod is %s: %s %s: %+v", s.Phase, s.Reason, s.Message,
				s.ContainerStatuses)
		}
		var found []string
		for _, pattern := range []string{"kubepods/pod*", "kubepods/*/pod*"} {
			more, err := filepath.Glob(filepath.Join(cgroupDir, pattern, id(*is)))
			if err != nil {
				return err
			}
			found = append(found, more...)
		}
		if len(found) != 1 {
			return fmt.Errorf("its cgroups are %q", found)
		}
		folder = found[0]
		return nil
	})
	return folder
}

// clear deletes the pods, those of an earlier try of the machine as well, and waits until they are
// gone.
func (c client) clear(t *testing.T) {
	t.Helper()
	pods := c.CoreV1().Pods(c.namespace)
	soon := metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))}
	err := pods.DeleteCollection(t.Context(), soon, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the pods are gone", func() error {
		list, err := pods.List(context.Background(), metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("there are %d", len(list.Items))
		}
		return err
	})
}

// addNetwork gives the interface that leads to the host its address (see the user network of
// qemu's manual).
func addNetwork(t *testing.T) {
	t.Helper()
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(i net.Interface) bool {
		return i.HardwareAddr.String() == os.Getenv("NUMALET_MAC")
	})
	if at < 0 {
		t.Fatalf("no interface has the address %s: %+v", os.Getenv("NUMALET_MAC"), all)
	}
	for _, args := range []string{
		"address add 10.0.2.15/24 dev " + all[at].Name,
		"link set " + all[at].Name + " up",
		"route add default via 10.0.2.2",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
}
