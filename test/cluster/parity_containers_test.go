package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	image "github.com/google/go-containerregistry/pkg/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/test/cluster/rig"
	containerdrig "github.com/numalet/numalet/test/containerd/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestParityOfContainers: under numalet and the stock kubelet, each with a containerd and runc of
// its own, containers of the same pods see the same from inside and reach the same end; the API
// server and events report the same. Each variant is in a pod, and NUMALET_INSIDE_PODS further pods
// have several random variants; NUMALET_PARITY_SEED draws others.
func TestParityOfContainers(t *testing.T) {
	seed := harness.Number(t, "NUMALET_PARITY_SEED", 1795356351761480071)
	several := harness.Number(t, "NUMALET_INSIDE_PODS", 20)
	containerdrig.NewRunc(t) // for user namespaces
	var sides []*inside
	for i, agent := range agents {
		sides = append(sides, newInside(t, agent, i == 0))
	}
	kinds := realVariants()
	each := together(kinds)
	chance := severalVariants(rand.New(rand.NewPCG(seed, 0)), slices.Concat(kinds...), int(several))
	for some := range slices.Chunk(slices.Concat(each, chance), atOnce) {
		for _, pod := range some {
			if pod.Spec.RuntimeClassName != nil {
				pod.Spec.RuntimeClassName = ptr.To(realHandler)
			}
		}
		compareInside(t, sides, some)
	}
}

// realVariants have an effect on real containers, by kind. Whether they start before a deadline
// depends on how busy the machine is, so none has one.
func realVariants() [][]variant {
	further := slices.DeleteFunc(furtherVariants(), func(one variant) bool {
		return one.name == "deadline"
	})
	return [][]variant{securityVariants(), lifeVariants(), contentVariants(), insideVariants(), further}
}

// together returns few pods that have each variant once: variants in one pod are of different
// kinds, or far apart in their list. Variants that nodes refuse are alone, and so are the lonely
// ones.
func together(kinds [][]variant) (pods []*v1.Pod) {
	var alone []variant
	for _, kind := range kinds {
		kind = slices.DeleteFunc(slices.Clone(kind), func(one variant) bool {
			is := one.refused || slices.Contains(lonely, one.name)
			if is {
				alone = append(alone, one)
			}
			return is
		})
		half := (len(kind) + 1) / 2
		for i, one := range kind {
			if i %= half; i == len(pods) {
				pods = append(pods, ordinaryPod(fmt.Sprintf("together-%d", i)))
			}
			note := pods[i].Annotations
			note[variantsNote] = strings.TrimSpace(note[variantsNote] + " " + one.name)
			one.set(pods[i])
		}
	}
	return slices.Concat(pods, eachVariant(alone))
}

// realHandler is containerd's runtime handler.
const realHandler = "runc"

// inside is a node of one agent with real containers.
type inside struct {
	*side
	// runtime is containerd's directory, cgroup the node's root cgroup.
	runtime, cgroup string
	// reports has what containers have reported, by container ID: each does so once.
	reports map[string]any
}

func newInside(t *testing.T, agent string, first bool) *inside {
	t.Helper()
	if first {
		containerdrig.Require(t)
		containerdrig.Alone(t)
	}
	return newInsideOf(t, rig.Start(t), agent, nil)
}

// newInsideOf is newInside in that cluster; the agent also has these settings.
func newInsideOf(t *testing.T, c rig.Cluster, agent string, settings map[string]any) *inside {
	t.Helper()
	n, d, cgroup := containerdrig.NodeBeside(t, agent)
	run := []string{containerdrig.Witness}
	containerdrig.ImportWitness(t, d, map[string]image.Config{
		rootImage:  {Entrypoint: run, Env: []string{"PATH=/bin", "FROM=image"}, WorkingDir: "/tmp"},
		userImage:  {Entrypoint: run, User: "1000"},
		namedImage: {Entrypoint: run, User: "web"},
		doneImage:  {Entrypoint: append(run, "--exit=0")},
		dataImage:  {Entrypoint: run},
	})
	if agent == "numalet" {
		rig.Share(t, n.Root) // as StockKubelet does
	} else {
		// With each sync the kubelet reports a container that could not be started, or its
		// back-off: this is often enough for a sync before the next try.
		n.Settings["syncFrequency"] = "3s"
	}
	n.Settings["systemReserved"] = map[string]string{"cpu": "10m"} // so that all fit
	n.Settings["podPidsLimit"] = 500
	maps.Copy(n.Settings, settings)
	profiles := filepath.Join(n.Root, "seccomp", "profiles")
	if err := os.MkdirAll(profiles, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(profiles, "a.json"),
		[]byte(`{"defaultAction": "SCMP_ACT_ALLOW"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	return &inside{startSide(t, c, n, agent, realHandler), filepath.Dir(d.LogFile()), cgroup,
		map[string]any{}}
}

// compareInside runs the pods on both nodes until each has reached the same state.
func compareInside(t *testing.T, sides []*inside, pods []*v1.Pod) {
	t.Helper()
	made := makeAll(t, []*side{sides[0].side, sides[1].side}, pods)
	for _, pod := range pods {
		if strings.HasPrefix(pod.Name, "together-") && !slices.Contains(made, pod) {
			t.Errorf("%s: the API server takes no pod with these variants together: %s; put one of them "+
				"elsewhere in its list", pod.Name, pod.Annotations[variantsNote])
		}
	}
	awaitAlike(t, sides, made)
	for _, s := range sides {
		s.deletePods(t)
	}
	harness.Eventually(t, "the pods are gone", func() error {
		return errors.Join(sides[0].gone(), sides[1].gone())
	})
}

// awaitAlike waits until each pod has reached the same state on both nodes.
func awaitAlike(t *testing.T, sides []*inside, pods []*v1.Pod) {
	t.Helper()
	began := time.Now()
	for left := pods; len(left) > 0; {
		now := []map[string]any{sides[0].state(t, left), sides[1].state(t, left)}
		var all []string
		left = slices.DeleteFunc(slices.Clone(left), func(pod *v1.Pod) bool {
			ours, theirs := now[0][pod.Name], now[1][pod.Name]
			is := differences(pod.Name, ours, theirs)
			if len(is) == 0 && ours == nil {
				is = []string{pod.Name + ": nothing came of it on either side"}
			}
			all = append(all, is...)
			return len(is) == 0
		})
		if len(left) > 0 && time.Since(began) > harness.Patience {
			t.Errorf("numalet and the kubelet differ:\n%s", strings.Join(all, "\n"))
			break
		}
		time.Sleep(time.Second)
	}
	t.Logf("%d pods, %v", len(pods), time.Since(began).Round(time.Second))
}

func (s *side) deletePods(t *testing.T) {
	t.Helper()
	err := s.Client.CoreV1().Pods(s.Namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{},
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *side) gone() error {
	list, err := s.Client.CoreV1().Pods(s.Namespace).List(context.Background(), metav1.ListOptions{})
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("%s has %d", s.Name, len(list.Items))
	}
	return err
}

// state returns each pod's result as JSON, without what differs between the nodes. It leaves out
// pods that are still on their way.
func (s *inside) state(t *testing.T, of []*v1.Pod) map[string]any {
	t.Helper()
	list, err := s.Client.CoreV1().Pods(s.Namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, out := s.events(t), map[string]any{}
	for i := range list.Items {
		pod := &list.Items[i]
		if !slices.ContainsFunc(of, func(o *v1.Pod) bool { return o.Name == pod.Name }) {
			continue
		}
		tree := map[string]any{"status": comparableStatus(pod), "events": events[pod.UID],
			"cgroup": s.cgroupOf(t, pod)}
		settled := isOver(pod) || len(pod.Status.ContainerStatuses) > 0
		for _, c := range statuses(pod) {
			id, come := cameTo(c)
			settled = settled && (come || isOver(pod) || events[pod.UID][mountFailed])
			if id != "" {
				report := s.report(pod.Name, c.Name, id)
				settled = settled && report != nil
				tree["inside "+c.Name] = report
			}
		}
		if settled {
			out[pod.Name] = s.normalized(t, tree, pod)
		}
	}
	return out
}

// mountFailed begins the event of a pod that cannot have a volume; its containers' status says that
// they are being created.
const mountFailed = "Warning FailedMount"

func statuses(pod *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

func isOver(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded
}

// cameTo returns the container that has something to report, and whether its state is final.
func cameTo(c v1.ContainerStatus) (id string, come bool) {
	s, last := c.State, c.LastTerminationState.Terminated
	switch {
	case s.Running != nil:
		return c.ContainerID, true
	case s.Terminated != nil:
		last, come = s.Terminated, true
	case s.Waiting != nil:
		come = !isOnItsWay(s.Waiting.Reason)
	}
	if last == nil || last.Reason == "StartError" {
		return "", come
	}
	return last.ContainerID, come
}

func isOnItsWay(reason string) bool {
	return reason == "ContainerCreating" || reason == "PodInitializing"
}

// report returns what a container has reported; nil: nothing yet, or not everything.
func (s *inside) report(pod, container, id string) any {
	if known, ok := s.reports[id]; ok {
		return known
	}
	raw, err := s.Client.CoreV1().Pods(s.Namespace).GetLogs(pod,
		&v1.PodLogOptions{Container: container}).Do(context.Background()).Raw()
	var out any
	if err != nil || json.Unmarshal(raw, &out) != nil {
		return nil
	}
	s.reports[id] = out
	return out
}

// events returns the reasons of the events about each pod, with what they are about.
func (s *inside) events(t *testing.T) map[types.UID]map[string]bool {
	t.Helper()
	list, err := s.Client.CoreV1().Events(s.Namespace).List(context.Background(),
		metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[types.UID]map[string]bool{}
	for _, e := range list.Items {
		about := e.InvolvedObject
		if out[about.UID] == nil {
			out[about.UID] = map[string]bool{}
		}
		out[about.UID][strings.TrimSpace(e.Type+" "+e.Reason+" "+about.FieldPath)] = true
	}
	return out
}

// cgroupOf returns the values of the pod's own cgroups.
func (s *inside) cgroupOf(t *testing.T, pod *v1.Pod) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, class := range []string{"", "*"} {
		maps.Copy(out, s.valuesOf(t, filepath.Join("kubepods", class, "pod"+string(pod.UID))))
	}
	return out
}

// valuesOf returns the values of a cgroup below the node's.
func (s *inside) valuesOf(t *testing.T, group string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range []string{"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.max",
		"cpu.weight", "memory.limit_in_bytes", "memory.max", "memory.min", "memory.high", "pids.max",
		"cpuset.cpus", "cpuset.mems", "hugetlb.*.limit_in_bytes", "hugetlb.*.max"} {
		for _, base := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup"} {
			found, err := filepath.Glob(filepath.Join(base, s.cgroup, group, file))
			if err != nil {
				t.Fatal(err)
			}
			for _, path := range found {
				raw, err := os.ReadFile(path)
				out[strings.Replace(path, s.cgroup, "/NODE", 1)] = fmt.Sprint(
					strings.TrimSpace(string(raw)), err)
			}
		}
	}
	return out
}
