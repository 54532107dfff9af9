package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/test/harness"
)

// storageCase is a pod, and what it writes: bytes by path, in its directory of volumes or logs.
type storageCase struct {
	name, volumes, containers, more string
	writes                          map[string]int
	evicted                         bool
}

// manifest returns the pod for a node.
func (c storageCase) manifest(node string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {%s
 nodeName: %s, automountServiceAccountToken: false, volumes: [%s], containers: [%s]}}`,
		c.name, c.more, node, c.volumes, c.containers)
}

// container returns a container with a limit of local storage, which mounts volumes.
func container(name, limit string, volumes ...string) string {
	var mounts []string
	for _, v := range volumes {
		mounts = append(mounts, fmt.Sprintf("{name: %s, mountPath: /%s}", v, v))
	}
	limits := ""
	if limit != "" {
		limits = "limits: {ephemeral-storage: " + limit + "}"
	}
	return fmt.Sprintf(`{name: %s, image: "%s", imagePullPolicy: IfNotPresent, resources: {%s}, volumeMounts: [%s]}`,
		name, rootImage, limits, strings.Join(mounts, ", "))
}

const cacheFile, mi = "volumes/kubernetes.io~empty-dir/cache/file", 1 << 20

// storageCases are the pods: what counts against which limit, and what does not.
func storageCases() []storageCase {
	const small = "{name: cache, emptyDir: {sizeLimit: 1Mi}}"
	return []storageCase{
		{"volume", small, container("main", "", "cache"), "", map[string]int{cacheFile: 2 * mi}, true},
		{"odd", "{name: cache, emptyDir: {medium: Memory, sizeLimit: 1000}}", container("main", "", "cache"), "",
			map[string]int{cacheFile: 4096}, true},
		{"whole", "{name: cache, emptyDir: {}}", container("main", "1Mi", "cache") + ", " + container("side", "1Mi"),
			"", map[string]int{cacheFile: 3 * mi}, true},
		{"logs", "", container("main", "1Mi") + ", " + container("side", "8Mi"), "",
			map[string]int{"main/more.log": 2 * mi}, true},
		{"layer", "", container("main", "1Ki") + ", " + container("side", "8Mi"), "", nil, true},
		{"critical", small, container("main", "", "cache"), "priorityClassName: system-node-critical,",
			map[string]int{cacheFile: 2 * mi}, false},
		{"enough", small, container("main", "8Mi", "cache"), "", map[string]int{
			cacheFile: mi / 2, "volumes/kubernetes.io~empty-dir/cache/below/file": 4096,
			"main/more.log": mi, "main/below/not.log": 20 * mi, "gone/0.log": 20 * mi}, false},
	}
}

// TestLocalStorageLimits: both agents evict the same pods that use more of the node's disk than
// they may, with the same words, and count the same.
func TestLocalStorageLimits(t *testing.T) {
	reported := map[string]string{}
	for _, agent := range agents {
		t.Run(agent, func(t *testing.T) { reported[agent] = limited(t, agent) })
	}
	if diff := cmp.Diff(reported["kubelet"], reported["numalet"]); diff != "" {
		t.Errorf("-kubelet +numalet:\n%s", diff)
	}
	if !strings.Contains(reported["numalet"], `volume: Failed Evicted Usage of EmptyDir volume "cache" exceeds the `+
		`limit "1Mi". `) {
		t.Errorf("numalet told\n%s", reported["numalet"])
	}
}

// limited returns what becomes of the pods.
func limited(t *testing.T, agent string) string {
	s := newSideWith(t, agent, map[string]any{"volumeStatsAggPeriod": "10s"})
	cases := storageCases()
	for _, c := range cases {
		s.Apply(c.manifest(s.Name))
	}
	for _, c := range cases {
		if c.name == "layer" { // it may be evicted at once
			continue
		}
		s.write(t, await(t, s.Cluster, s.Namespace, c.name, runs), c.writes)
	}
	out := ""
	for _, c := range cases {
		if !c.evicted {
			continue
		}
		p := await(t, s.Cluster, s.Namespace, c.name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
		out += fmt.Sprintln(c.name+":", p.Status.Phase, p.Status.Reason, p.Status.Message, disruption(p)) +
			fmt.Sprintln(eventsOf(t, s, c.name, "Evicted"))
	}
	out += s.counts(t, "enough") + s.evictions(t, strings.Count(out, " Evicted "))
	for _, name := range []string{"critical", "enough"} {
		if p := await(t, s.Cluster, s.Namespace, name, runs); !runs(p) {
			t.Errorf("%s is %s", name, p.Status.Phase)
		}
	}
	all, err := s.Client.CoreV1().Events(s.Namespace).List(context.Background(),
		metav1.ListOptions{FieldSelector: "reason=Evicted"})
	if err != nil {
		t.Fatal(err)
	}
	var times []string
	for _, e := range all.Items {
		times = append(times, fmt.Sprint(e.InvolvedObject.Name, " ", e.Count, " ", e.Annotations, "\n"))
	}
	slices.Sort(times)
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
	return out + strings.Join(times, "")
}

// write writes a pod's files as its containers do.
func (s *side) write(t *testing.T, p *v1.Pod, files map[string]int) {
	t.Helper()
	for name, size := range files {
		dir := filepath.Join(s.Root, "pods", string(p.UID))
		if !strings.HasPrefix(name, "volumes/") {
			dir = cri.PodLogDir(filepath.Join(s.Dir, "logs"), p)
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, make([]byte, size), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// counts waits until the node's summary has what the pod wrote, and returns what it says of the
// pod's disks without the writable layer, which is another one for each container.
func (s *side) counts(t *testing.T, pod string) (out string) {
	t.Helper()
	harness.Eventually(t, "the summary has what "+pod+" uses", func() error {
		text, err := s.Run("get", "--raw", "/api/v1/nodes/"+s.Name+"/proxy/stats/summary")
		if err != nil {
			return err
		}
		var summary statsapi.Summary
		if err := json.Unmarshal([]byte(text), &summary); err != nil {
			return err
		}
		at := slices.IndexFunc(summary.Pods, func(p statsapi.PodStats) bool { return p.PodRef.Name == pod })
		if at < 0 {
			return errors.New("there is no such pod")
		}
		p := summary.Pods[at]
		if len(p.VolumeStats) != 1 || len(p.Containers) != 1 || *p.VolumeStats[0].InodesUsed < 4 {
			return fmt.Errorf("there is %s", text)
		}
		v, c, e := p.VolumeStats[0], p.Containers[0], p.EphemeralStorage
		out = fmt.Sprintln(v.Name, *v.UsedBytes, *v.InodesUsed, "logs", *c.Logs.UsedBytes, *c.Logs.InodesUsed,
			"all", *e.UsedBytes-*c.Rootfs.UsedBytes, *e.InodesUsed-*c.Rootfs.InodesUsed)
		return nil
	})
	return out
}

// TestLocalStorageOff: with localStorageCapacityIsolation off a node offers no ephemeral-storage,
// and a pod that uses more than it may runs on after others would have noticed.
func TestLocalStorageOff(t *testing.T) {
	s := newSideWith(t, "numalet", map[string]any{
		"volumeStatsAggPeriod": "10s", "localStorageCapacityIsolation": false})
	c := storageCases()[0]
	s.Apply(c.manifest(s.Name))
	before := await(t, s.Cluster, s.Namespace, c.name, runs)
	s.write(t, before, map[string]int{cacheFile: 2 * mi, filepath.Dir(cacheFile) + "/below/file": 1})
	s.counts(t, c.name)
	time.Sleep(enforced + 2*time.Second)
	after := await(t, s.Cluster, s.Namespace, c.name, runs)
	if a, b := identity(before.Status.ContainerStatuses[0]), identity(after.Status.ContainerStatuses[0]); a != b {
		t.Errorf("its container was %q, and is %q", a, b)
	}
	node, err := s.Client.CoreV1().Nodes().Get(context.Background(), s.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for what, list := range map[string]v1.ResourceList{
		"capacity": node.Status.Capacity, "allocatable": node.Status.Allocatable} {
		if storage, has := list[v1.ResourceEphemeralStorage]; has {
			t.Errorf("its %s has %s of ephemeral storage", what, storage.String())
		}
	}
	s.MustRun("delete", "pods", "--all", "--timeout=1m")
}

// enforced is the time between two looks at limits.
const enforced = 10 * time.Second

// TestLocalStorageKilled kills the agent at points of an eviction: when the eviction has begun, when the
// container has ended, and when the API server knows. The next run goes on where it was: the pod ends
// once, its container is not started again, and nobody says a second time that it was evicted.
func TestLocalStorageKilled(t *testing.T) {
	s := newSideWith(t, "numalet", nil)
	layer := storageCases()[4]
	for _, point := range []struct {
		name    string
		always  bool
		reached func(pod string) bool
	}{
		{"begun", true, func(pod string) bool {
			return strings.Contains(s.LogTail(200), `"Evicting a pod" pod="`+s.Namespace+"/"+pod)
		}},
		{"stopped", false, func(pod string) bool {
			c, known := s.Runtime.State().Container(pod, "main")
			return known && !c.Running()
		}},
		{"told", false, func(pod string) bool {
			p, err := get(t, s.Cluster, s.Namespace, pod)
			return err == nil && p.Status.Phase == v1.PodFailed
		}},
	} {
		if !point.always && os.Getenv(roundsEnv) == "" {
			continue
		}
		layer.name = point.name
		s.killAt(t, layer, point.reached)
	}
	all, err := s.Client.CoreV1().Events(s.Namespace).List(context.Background(),
		metav1.ListOptions{FieldSelector: "reason=Evicted"})
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int32{}
	for _, e := range all.Items {
		if times[e.InvolvedObject.Name] += max(e.Count, 1); times[e.InvolvedObject.Name] > 1 {
			t.Errorf("it is said again that %s was evicted: %s", e.InvolvedObject.Name, e.Message)
		}
	}
}

// killAt starts a pod that is evicted, kills the agent when a point is reached, and looks at the end.
func (s *side) killAt(t *testing.T, c storageCase, reached func(pod string) bool) {
	t.Helper()
	s.Apply(c.manifest(s.Name))
	harness.Eventually(t, c.name, func() error {
		if !reached(c.name) {
			return errors.New("it is not reached")
		}
		return nil
	})
	s.Kill()
	s.Start()
	p := await(t, s.Cluster, s.Namespace, c.name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if p.Status.Reason != "Evicted" || disruption(p) != "no disruption" ||
		!strings.Contains(p.Status.Message, "Container main exceeded its local") {
		t.Errorf("%s: it is %s: %s, %s", c.name, p.Status.Reason, p.Status.Message, disruption(p))
	}
	for _, status := range p.Status.ContainerStatuses {
		if status.RestartCount > 0 {
			t.Errorf("%s: %s was started again", c.name, status.Name)
		}
	}
	harness.Eventually(t, c.name+" does not run", func() error {
		if c, _ := s.Runtime.State().Container(c.name, "main"); c.Running() {
			return errors.New("it runs")
		}
		return nil
	})
	s.MustRun("delete", "pod", c.name, "--timeout=1m")
}
