package cluster_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// hostile is a pod that an API server accepts and that asks a node for endless work, or for what
// does not exist.
type hostile struct {
	change func(*v1.Pod)
	// says is part of what the pod's status or an event says; "": it runs.
	says string
}

func hostilePods() map[string]hostile {
	spec := func(change func(*v1.PodSpec), says string) hostile {
		return hostile{func(p *v1.Pod) { change(&p.Spec) }, says}
	}
	main := func(change func(*v1.Container), says string) hostile {
		return spec(func(s *v1.PodSpec) { change(&s.Containers[0]) }, says)
	}
	asks := func(name v1.ResourceName, amount, says string) hostile {
		return main(func(c *v1.Container) {
			c.Resources.Limits = v1.ResourceList{name: resource.MustParse(amount)}
		}, says)
	}
	return map[string]hostile{
		"bomb": main(func(c *v1.Container) {
			c.Env = []v1.EnvVar{{Name: "A0", Value: strings.Repeat("x", 100)}}
			for i := range 8 {
				c.Env = append(c.Env, v1.EnvVar{Name: fmt.Sprintf("A%d", i+1),
					Value: strings.Repeat(fmt.Sprintf("$(A%d)", i), 10)})
			}
		}, "spec.containers[0].env[4]: Too long"),
		"containers": spec(func(s *v1.PodSpec) {
			for i := range 2000 {
				s.Containers = append(s.Containers, v1.Container{Name: fmt.Sprintf("c%d", i),
					Image: s.Containers[0].Image})
			}
		}, "spec.containers: Too many"),
		"cpus":    asks(v1.ResourceCPU, "1e18", "spec.containers[0].resources.limits[cpu]"),
		"memory":  asks(v1.ResourceMemory, "1e18", "spec.containers[0].resources.limits[memory]"),
		"devices": asks("example.com/gpu", "1000000000000", "limits[example.com/gpu]"),
		"objects": main(func(c *v1.Container) {
			for i := range 500 {
				c.EnvFrom = append(c.EnvFrom, v1.EnvFromSource{
					Prefix: fmt.Sprintf("P%d_", i), ConfigMapRef: &v1.ConfigMapEnvSource{
						LocalObjectReference: v1.LocalObjectReference{Name: "large"}}})
			}
		}, "larger than 1 MiB"),
		"volumes": spec(func(s *v1.PodSpec) {
			for i := range 2000 {
				s.Volumes = append(s.Volumes, v1.Volume{Name: fmt.Sprintf("v%d", i)})
			}
		}, "spec.volumes: Too many"),
		"forever": spec(func(s *v1.PodSpec) {
			s.TerminationGracePeriodSeconds = ptr.To[int64](math.MaxInt64)
		}, ""),
		// Users cannot write the agent's own annotations.
		"annotations": {func(p *v1.Pod) {
			p.Annotations = map[string]string{
				"numalet.io/assignment":       `{"bootID": "x", "containers": {"main": {"cpus": "0-3"}}}`,
				"numalet.io/root-dir":         "/elsewhere",
				"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x",
				"kubernetes.io/config.seen": "never", "large": strings.Repeat("x", 200_000),
			}
		}, ""},
	}
}

// TestHostilePods: no pod of the API server harms another pod, even across a restart of the agent,
// and each is reported by name where users look.
func TestHostilePods(t *testing.T) {
	c, n := ours(t)
	large := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"},
		Data: map[string]string{"a": strings.Repeat("x", 500_000)}}
	_, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Create(t.Context(), large,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := hostilePods()
	for name, h := range pods {
		p := podOn(n.Name, name)
		h.change(p)
		_, err := c.Client.CoreV1().Pods(c.Namespace).Create(t.Context(), p, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	c.Apply(bound(n.Name, "good", ""))
	await(t, c, c.Namespace, "good", runs)
	for name, h := range pods {
		await(t, c, c.Namespace, name, func(p *v1.Pod) bool {
			return h.says == "" && runs(p) ||
				h.says != "" && strings.Contains(messagesOf(t, c, p), h.says)
		})
	}

	n.Kill()
	n.Start()
	c.Apply(bound(n.Name, "later", ""))
	await(t, c, c.Namespace, "later", runs)
	if used := harness.MemoryMiB(t, n.PID(), "VmHWM"); used > 300 {
		t.Errorf("the agent took %.0f MiB of memory, want at most 300", used)
	}
}

// messagesOf returns what a pod's status and its events say.
func messagesOf(t *testing.T, c rig.Cluster, p *v1.Pod) string {
	t.Helper()
	out := p.Status.Message
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Waiting != nil {
			out += "\n" + s.State.Waiting.Message
		}
	}
	events, err := c.Client.CoreV1().Events(p.Namespace).List(context.Background(),
		metav1.ListOptions{FieldSelector: "involvedObject.name=" + p.Name})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		out += "\n" + e.Message
	}
	return out
}
