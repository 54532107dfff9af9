package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	podstatuses "github.com/numalet/numalet/agent/cluster/statuses"
	"github.com/numalet/numalet/agent/pods/podstatus"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestRefusedStatus: an API server that refuses a part of a pod's status is told the rest, the event
// names the part, and a good status is told as a whole.
func TestRefusedStatus(t *testing.T) {
	c := rig.Start(t)
	pods := c.Client.CoreV1().Pods(c.Namespace)
	pod, err := pods.Create(t.Context(), &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "refused"},
		Spec: v1.PodSpec{NodeName: "no-node", Containers: []v1.Container{
			{Name: "main", Image: "registry.test/work:1", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{"example.com/gpu": resource.MustParse("2")}}}}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex // guards told
	var reported []string
	w, err := podstatuses.New(podstatuses.Config{Client: c.Client,
		Tell: func(_ runtime.Object, _, reason, message string) {
			mu.Lock()
			defer mu.Unlock()
			reported = append(reported, reason+": "+message)
		}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // until it is stopped
	defer running.Wait()
	defer stop()
	w.Saw([]*v1.Pod{pod})
	says := func(message string, health int, ids ...v1.ResourceID) {
		t.Helper()
		of := v1.ResourceStatus{Name: "example.com/gpu"}
		for _, id := range ids {
			of.Resources = append(of.Resources, v1.ResourceHealth{ResourceID: id, Health: "Healthy"})
		}
		w.Wrote(podstatus.Change{Pod: pod, After: v1.PodStatus{Phase: v1.PodRunning, Message: message,
			ContainerStatuses: []v1.ContainerStatus{{Name: "main", Ready: true, Image: "work:1",
				State:                    v1.ContainerState{Running: &v1.ContainerStateRunning{}},
				AllocatedResourcesStatus: []v1.ResourceStatus{of}}}}})
		harness.Eventually(t, "the status is told: "+message, func() error {
			is, err := pods.Get(ctx, pod.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			got := is.Status
			if got.Message != message || len(got.ContainerStatuses) != 1 || !got.ContainerStatuses[0].Ready ||
				len(got.ContainerStatuses[0].AllocatedResourcesStatus) != health {
				return fmt.Errorf("it is %+v", got)
			}
			return nil
		})
	}
	says("one", 0, "gpu-1", "gpu-1")
	says("two", 0, "gpu-1", "gpu-1")
	says("three", 1, "gpu-1", "gpu-2")
	mu.Lock()
	defer mu.Unlock()
	if len(reported) != 1 || !strings.HasPrefix(reported[0], "PodStatusRefused: ") ||
		!strings.Contains(reported[0], "Duplicate value") || !strings.HasSuffix(reported[0],
		"Left out: status.containerStatuses[main].allocatedResourcesStatus") {
		t.Errorf("it told %q", reported)
	}
}
