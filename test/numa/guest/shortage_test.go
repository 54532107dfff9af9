package guest_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cmd/numalet-lab/containerd"
	"github.com/numalet/numalet/test/harness"
)

// shortage is something that a hog takes until the node is short of it.
type shortage struct {
	name string
	hog  []string
	// reclaims is the resource in the event of the node.
	reclaims string
}

// TestShortageNode: a pod that takes memory, threads or the disk as fast as it can is evicted before
// there is nothing left, and no other pod, by numalet each time; of the first eviction the stock kubelet
// says the same. Several pods are evicted in the same order by both. NUMALET_ROUNDS says how many rounds (1),
// NUMALET_SHORTAGE which shortage (all, the kubelet's only memory and victims), and NUMALET_AGENTS whose
// (numalet,kubelet).
func TestShortageNode(t *testing.T) {
	d := newRuntime(t)
	addNetwork(t)
	c := newClient(t)
	n := shortNode(t, d.Endpoint())
	// What a fork bomb takes is the kernel's memory: of the default there is not enough for all.
	if err := os.WriteFile("/proc/sys/kernel/pid_max", []byte("6000"), 0o644); err != nil {
		t.Fatal(err)
	}
	shortages := []shortage{
		{"memory", []string{"--memory=200"}, "memory"},
		{"pids", []string{"--threads=1000"}, "pids"},
		{"disk", []string{"--disk=100"}, "ephemeral-storage"},
		{name: "victims"},
	}
	said := map[string]map[string]string{}
	for _, agent := range strings.Split(cmp.Or(os.Getenv("NUMALET_AGENTS"), "numalet,kubelet"), ",") {
		n.Program = map[string][]string{
			"kubelet": {"sh", "-c", inCgroup, "sh", filepath.Join(dir, "kubelet")}}[agent]
		n.Start()
		for _, s := range shortages {
			only := os.Getenv("NUMALET_SHORTAGE")
			chosen := only == s.name || only == "all" || only == "" &&
				(agent == "numalet" || s.name == "memory" || s.name == "victims")
			if !chosen {
				continue
			}
			t.Run(agent+" "+s.name, func(t *testing.T) {
				of := rounds{client: c, node: n.As(t), agent: agent, shortage: s}
				if said[s.name] == nil {
					said[s.name] = map[string]string{}
				}
				if s.name == "victims" {
					said[s.name][agent] = of.victims(t)
				} else {
					said[s.name][agent] = of.run(t)
				}
			})
		}
		n.Kill()
	}
	for name, by := range said {
		if by["numalet"] == "" || by["kubelet"] == "" { // the kernel came before the kubelet
			continue
		}
		if diff := gocmp.Diff(by["kubelet"], by["numalet"]); diff != "" {
			t.Errorf("%s: -kubelet +numalet:\n%s", name, diff)
		}
	}
}

// shortNode is a node that is short of something while there is still enough for its own.
func shortNode(t *testing.T, endpoint string) *harness.Node {
	t.Helper()
	n := harness.NewOn(t, endpoint)
	n.Args = append(n.Args, "--kubeconfig="+filepath.Join(dir, "node.kubeconfig"))
	for name, value := range map[string]any{
		"cpuManagerPolicy": "none", "topologyManagerPolicy": "none", "cgroupsPerQOS": true,
		"enforceNodeAllocatable": []string{"pods"}, "systemReserved": map[string]string{},
		"port":                             harness.FreePort(t),
		"authentication":                   map[string]any{"webhook": map[string]any{"enabled": false}},
		"authorization":                    map[string]any{"mode": "AlwaysAllow"},
		"evictionPressureTransitionPeriod": "1s",
		"evictionHard": map[string]string{
			"memory.available": "600Mi", "nodefs.available": "400Mi", "nodefs.inodesFree": "1%",
			"imagefs.available": "1Mi", "imagefs.inodesFree": "0%", "pid.available": "2500",
		},
	} {
		n.Settings[name] = value
	}
	return n
}

// rounds are evictions of a hog, one after the other.
type rounds struct {
	client
	node  *harness.Node
	agent string
	shortage
}

// run returns what the agent said of the first eviction; "" if the kernel came first.
func (r rounds) run(t *testing.T) (said string) {
	most, err := strconv.Atoi(cmp.Or(os.Getenv("NUMALET_ROUNDS"), "1"))
	if err != nil {
		t.Fatal(err)
	}
	r.clear(t)
	r.start(t, "bystander", "64Mi", []string{"--print"}, "work")
	inTime := 0
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.did())
		}
	})
	r.calm(t)
	for round := range most {
		name := fmt.Sprintf("hog-%s-%d", r.agent, round)
		watched := watch(t)
		r.start(t, name, "", r.hog, "hog")
		pod := r.ended(t, name)
		seen := watched()
		evicted := pod.Status.Reason == "Evicted"
		row(t, "round %d: %s, %s", round+1, cmp.Or(pod.Status.Reason, outcome(pod)), seen)
		if evicted && said == "" {
			said = r.said(t, pod, seen)
		}
		if evicted && seen.kills == 0 && seen.disk > 0 && seen.threads > 0 {
			inTime++
		} else if r.agent == "numalet" {
			t.Errorf("%s came too late: %s, %s", name, outcome(pod), seen)
		}
		if other := r.bystander(t); r.agent == "numalet" && other.Phase != v1.PodRunning {
			t.Fatalf("after %s the bystander is %s %s", name, other.Phase, other.Message)
		}
		r.calm(t) // while the API server still has the pod, whose containers only the agent removes
		r.remove(t, name)
	}
	other := r.bystander(t)
	row(t, "%s: %d of %d in time; the bystander is %s %s", r.shortage.name, inTime, most, other.Phase,
		other.Reason)
	r.clear(t)
	return said
}

// bystander returns the status of the pod that takes nothing.
func (r rounds) bystander(t *testing.T) v1.PodStatus {
	t.Helper()
	pod, err := r.CoreV1().Pods(r.namespace).Get(t.Context(), "bystander", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return pod.Status
}

// did returns what the agent's log says of what was short, removed and evicted.
func (r rounds) did() string {
	var out []string
	telling := regexp.MustCompile("vict|emov|short|image")
	for line := range strings.Lines(r.node.LogTail(100_000)) {
		if telling.MatchString(line) {
			out = append(out, line)
		}
	}
	return "the agent's log:\n" + strings.Join(out[max(0, len(out)-80):], "")
}

// start creates a pod that is not started again, of a class of priorities.
func (r rounds) start(t *testing.T, name, memory string, args []string, command string, class ...string) {
	t.Helper()
	requests := v1.ResourceList{v1.ResourceCPU: resource.MustParse("10m")}
	if memory != "" {
		requests[v1.ResourceMemory] = resource.MustParse(memory)
	}
	_, err := r.CoreV1().Pods(r.namespace).Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.PodSpec{NodeName: "node", HostNetwork: true, RestartPolicy: v1.RestartPolicyNever,
			AutomountServiceAccountToken: ptr.To(false),
			Tolerations:                  []v1.Toleration{{Operator: v1.TolerationOpExists}},
			PriorityClassName:            strings.Join(class, ""),
			Containers: []v1.Container{{Name: "main", Image: containerd.WorkImage,
				Command:   append([]string{containerd.Program, "container", command}, args...),
				Resources: v1.ResourceRequirements{Requests: requests}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// calm waits until the node is short of nothing.
func (r rounds) calm(t *testing.T) {
	t.Helper()
	r.node.Eventually("the node is short of nothing", func() error {
		node, err := r.CoreV1().Nodes().Get(t.Context(), "node", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if good := c.Type == v1.NodeReady; (c.Status == v1.ConditionTrue) != good {
				return fmt.Errorf("%s is %s: %s", c.Type, c.Status, c.Message)
			}
		}
		return nil
	})
}

// ended waits until the pod has ended.
func (r rounds) ended(t *testing.T, name string) (pod *v1.Pod) {
	t.Helper()
	r.node.Eventually(name+" has ended", func() (err error) {
		pod, err = r.CoreV1().Pods(r.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase != v1.PodFailed && pod.Status.Phase != v1.PodSucceeded {
			err = fmt.Errorf("it is %s %s", pod.Status.Phase, pod.Status.Reason)
		}
		return err
	})
	return pod
}

func (r rounds) remove(t *testing.T, name string) {
	t.Helper()
	pods := r.CoreV1().Pods(r.namespace)
	err := pods.Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(1))})
	if err != nil {
		t.Fatal(err)
	}
	r.node.Eventually(name+" is gone", func() error {
		if _, err := pods.Get(context.Background(), name, metav1.GetOptions{}); err == nil {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

// outcome says how the pod's container ended.
func outcome(pod *v1.Pod) string {
	for _, s := range pod.Status.ContainerStatuses {
		if end := s.State.Terminated; end != nil {
			return fmt.Sprintf("%s, exit code %d", end.Reason, end.ExitCode)
		}
	}
	return "no container has ended"
}

// said returns what others are told of an eviction, without amounts.
func (r rounds) said(t *testing.T, pod *v1.Pod, seen watchedNode) string {
	t.Helper()
	lines := []string{fmt.Sprint(pod.Status.Phase, " ", pod.Status.Reason, ": ",
		withoutAmounts(pod.Status.Message))}
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.DisruptionTarget {
			lines = append(lines, fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason, ": ",
				withoutAmounts(c.Message)))
		}
	}
	r.node.Eventually("the events of the eviction", func() error {
		list, err := r.CoreV1().Events("").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		found := map[string]string{}
		for _, e := range list.Items {
			switch {
			case e.InvolvedObject.UID == pod.UID && e.Reason == "Evicted":
				found["pod"] = fmt.Sprint(e.Type, " ", e.Reason, ": ", withoutAmounts(e.Message), " ",
					annotations(e.Annotations))
			case e.InvolvedObject.Kind == "Node" && e.Reason == "EvictionThresholdMet" &&
				strings.HasSuffix(e.Message, r.reclaims) && !e.LastTimestamp.Time.Before(seen.began):
				found["node"] = fmt.Sprint(e.Type, " ", e.Reason, ": ", e.Message)
			}
		}
		if len(found) != 2 {
			return fmt.Errorf("there are %v", found)
		}
		lines = append(lines, found["pod"], found["node"])
		return nil
	})
	return strings.Join(lines, "\n")
}

func annotations(all map[string]string) string {
	var out []string
	for name, value := range all {
		if strings.HasSuffix(name, "_usage") {
			value = withoutAmounts(value)
		}
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// withoutAmounts replaces amounts that were measured.
func withoutAmounts(text string) string {
	words := strings.Fields(text)
	for i, word := range words {
		bare := strings.TrimRight(word, ".,")
		if i == 0 || words[i-1] == "available:" || words[i-1] == "using" {
			if _, err := resource.ParseQuantity(bare); err == nil {
				words[i] = "N" + word[len(bare):]
			}
		}
	}
	return strings.Join(words, " ")
}
