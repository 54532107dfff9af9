package cluster_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/cmd/numalet-lab/csidriver"
	"github.com/numalet/numalet/test/cluster/rig"
	"github.com/numalet/numalet/test/harness"
)

// TestFullNode: a pod whose volume is one too many for the node waits, and is rejected after 2 min 3 s, by
// numalet with the same status, event and metric as by the kubelet, and the driver is asked anew how many
// volumes the node takes. It runs only with $NUMALET_ROUNDS.
func TestFullNode(t *testing.T) {
	if harness.Number(t, "NUMALET_ROUNDS", 0) == 0 {
		t.Skip("$NUMALET_ROUNDS is not set; the test takes two minutes")
	}
	agents := []string{"kubelet", "numalet"}
	reported := make([]string, len(agents))
	t.Run("of", func(t *testing.T) {
		for i, agent := range agents {
			t.Run(agent, func(t *testing.T) {
				t.Parallel()
				reported[i] = tellFullNode(t, agent)
				keepStory(t, agent+"-full", reported[i])
			})
		}
	})
	if diff := cmp.Diff(reported[0], reported[1]); diff != "" && !t.Failed() {
		t.Errorf("the kubelet (-) and numalet (+) differ:\n%s", diff)
	}
	if !strings.Contains(reported[1], "pod Failed VolumeAttachmentLimitExceeded Pod was rejected: Node has reached") {
		t.Errorf("the pod was not rejected for its volume:\n%s", reported[1])
	}
}

// tellFullNode tells how a node of the agent rejects a pod whose volume cannot be attached.
func tellFullNode(t *testing.T, agent string) string {
	c := rig.Start(t)
	s := &csiStory{Cluster: c, Node: csiNodeOf(t, c, agent), events: map[string]bool{},
		csiCase: csiCase{name: "full", object: "nodeAllocatableUpdatePeriodSeconds: 3600"}}
	s.furnish(t)
	s.await(t, "the driver is registered", func() error { return s.isRegistered(t, true) })
	s.d.Order(csidriver.Order{Method: "ControllerPublishVolume", Code: codes.ResourceExhausted,
		Message: "no slot is free"})
	asked, began := s.called("NodeGetInfo"), time.Now()
	s.begin(s.name)
	for time.Since(began) < 2*time.Minute {
		time.Sleep(10 * time.Second)
		if pod, err := get(t, c, c.Namespace, s.name); err != nil || pod.Status.Phase != v1.PodPending {
			t.Fatalf("after %v: %v, %+v", time.Since(began), err, pod)
		}
	}
	await(t, c, c.Namespace, s.name, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	t.Logf("%s: rejected after %v, NodeGetInfo was called %d times", agent, time.Since(began),
		s.called("NodeGetInfo")-asked)
	s.await(t, "the driver was asked anew how many volumes the node takes", func() error {
		if s.called("NodeGetInfo") == asked {
			return fmt.Errorf("there were %d calls", asked)
		}
		return nil
	})
	s.await(t, "the volume is not in use", func() error {
		node, err := s.Client.CoreV1().Nodes().Get(t.Context(), s.Name, metav1.GetOptions{})
		if err == nil && len(node.Status.VolumesInUse) > 0 && agent == "numalet" { // the kubelet keeps it
			err = fmt.Errorf("in use are %v", node.Status.VolumesInUse)
		}
		return err
	})
	time.Sleep(5 * time.Second) // until the status is settled
	s.tellPod(t)
	s.await(t, "the event of the rejection is there", func() error {
		for _, e := range s.newEvents(t) {
			if strings.Contains(e, "VolumeAttachmentLimitExceeded") {
				s.line("event " + e)
				return nil
			}
		}
		return fmt.Errorf("there are %v", s.events)
	})
	metrics := c.MustRun("get", "--raw", "/api/v1/nodes/"+s.Name+"/proxy/metrics")
	rejections := regexp.MustCompile(`(?m)^kubelet_admission_rejections_total.*VolumeAttachmentLimit.*$`)
	s.line("metric " + rejections.FindString(metrics))
	c.MustRun("delete", "pod", s.name, "--timeout=2m")
	return s.text.String()
}
