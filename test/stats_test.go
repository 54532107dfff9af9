package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// TestStats asks the built binary for its pods' usage in each possible way, while the runtime
// answers and while it hangs.
func TestStats(t *testing.T) {
	t.Parallel()
	n := harness.New(t)
	n.Start()
	n.Pod("web", manifestOf("web", "volumes: [{name: scratch, emptyDir: {}}]\n  containers: "+
		"[{name: main, image: sim.local/app, volumeMounts: [{name: scratch, mountPath: /s}]}]"))
	pod := n.AwaitPhase("web-node", v1.PodRunning)
	n.Eventually("the summary has the pod", func() error {
		used, err := summary(n)
		if err != nil {
			return err
		}
		return complete(used, string(pod.UID))
	})
	for path, wanted := range map[string][]string{
		"/metrics/resource": {`pod_cpu_usage_seconds_total{namespace="default",pod="web-node"} `,
			`container_memory_working_set_bytes{container="main",namespace="default",` +
				`pod="web-node"} `, "node_cpu_usage_seconds_total ", "resource_scrape_error 0"},
		"/metrics/cadvisor": {`container_cpu_usage_seconds_total{container="main",`,
			`container_network_receive_bytes_total{container="",`,
			`container_processes{container="main",`, "machine_cpu_cores{"},
		"/metrics/probes": nil,
		"/metrics":        {"kubelet_cgroup_version ", `kubelet_metrics_provider{provider="cri"} 1`},
	} {
		text := n.Get(path)
		if _, err := testutil.TextToMetricFamilies(strings.NewReader(text)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		for _, begin := range wanted {
			if !strings.Contains("\n"+text, "\n"+begin) {
				t.Errorf("%s has no line that begins with %s:\n%s", path, begin, text)
			}
		}
	}
	if err := n.Runtime.SetFault(crisim.Fault{Method: "ListPodSandboxStats", Hang: true}); err != nil {
		t.Fatal(err)
	}
	n.Eventually("the runtime hangs, and what was known is told", func() error {
		text := n.Get("/metrics/resource")
		if !strings.Contains(text, "resource_scrape_error 1\n") {
			return errors.New("no error is told")
		}
		if !strings.Contains(text, `pod="web-node"`) {
			return fmt.Errorf("the pod is gone from\n%s", text)
		}
		return nil
	})
}

// summary requests the summary as early versions of metrics-server did.
func summary(n *harness.Node) (out statsapi.Summary, err error) {
	resp, err := http.PostForm(n.URL("/stats/summary"), url.Values{})
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(text, &out)
}

// complete returns what a summary lacks about the one pod.
func complete(s statsapi.Summary, uid string) error {
	switch {
	case len(s.Pods) != 1 || s.Pods[0].PodRef.UID != uid:
		return fmt.Errorf("pods are %+v", s.Pods)
	case s.Node.NodeName != "node" || s.Node.CPU == nil || s.Node.Memory == nil ||
		s.Node.Fs == nil || s.Node.Runtime.ImageFs == nil:
		return fmt.Errorf("node is %+v", s.Node)
	}
	p := s.Pods[0]
	if p.CPU == nil || p.Memory == nil || p.Network == nil || len(p.Containers) != 1 {
		return fmt.Errorf("pod is %+v", p)
	}
	if c := p.Containers[0]; c.Name != "main" || c.CPU == nil || c.Rootfs == nil ||
		c.CPU.UsageNanoCores == nil {
		return fmt.Errorf("container is %+v", c)
	}
	return nil
}
