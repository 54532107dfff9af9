package cluster_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

const autoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 3
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
  metrics: [{type: Resource, resource: {name: cpu, target: TARGET}}]
`

// TestKubectlTop: with metrics-server, kubectl top shows the usage of the node and its pods, and an
// autoscaler scales a Deployment by their CPU usage.
func TestKubectlTop(t *testing.T) {
	c := rig.Start(t)
	c.Metrics()
	n := c.Join(harness.New(t), "measured")
	n.Start()
	c.AwaitReady(n.Name)
	web := controller("Deployment", "apps/v1", "web", "  replicas: 3\n")
	c.Apply(strings.Replace(web, "work:1", "work:1, resources: {requests: {cpu: 1m}}", 1) + "---" +
		strings.Replace(autoscaler, "TARGET", "{type: AverageValue, averageValue: 1}", 1))
	c.MustRun("rollout", "status", "deployment/web", "--timeout=1m")

	harness.Eventually(t, "kubectl top pod has pods", func() error {
		return podUse(c.Run("top", "pod", "--no-headers"))
	})
	use := regexp.MustCompile(`^measured +[1-9]\d*m +\d+% +[1-9]\d*Mi +\d+%\s*$`)
	if text := c.MustRun("top", "node", n.Name, "--no-headers"); !use.MatchString(text) {
		t.Errorf("kubectl top node prints %q", text)
	}
	const replicas = "jsonpath={.status.readyReplicas}"
	eventually(t, c, "1", "get", "deployment", "web", "-o", replicas)
	c.Apply(strings.Replace(autoscaler, "TARGET", "{type: Utilization, averageUtilization: 50}", 1))
	eventually(t, c, "3", "get", "deployment", "web", "-o", replicas)
}

// podUse returns an error unless each line of the text shows a simulated pod's usage: so many
// thousandths of a CPU, and 8 more MiB of memory.
func podUse(text string, err error) error {
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) != 3 || !strings.HasPrefix(fields[0], "web-") {
			return fmt.Errorf("it prints %q", text)
		}
		cpu, cpuErr := strconv.Atoi(strings.TrimSuffix(fields[1], "m"))
		memory, memoryErr := strconv.Atoi(strings.TrimSuffix(fields[2], "Mi"))
		// The metrics' times are in milliseconds, and kubectl rounds up.
		if more := cpu - (memory - 8); cpuErr != nil || memoryErr != nil || more < 0 || more > 1 {
			return fmt.Errorf("it prints %q", text)
		}
	}
	if text == "" {
		return errors.New("it prints nothing")
	}
	return nil
}
