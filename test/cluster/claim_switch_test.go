package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/test/cluster/drivers"
	"github.com/numalet/numalet/test/harness"
)

// TestSwitchClaims: a node whose pods have prepared claims goes from the stock kubelet to numalet and
// back. No container notices, no driver gets a call that is not owed, and each agent releases what
// the other has prepared.
func TestSwitchClaims(t *testing.T) {
	port, servers := newProbeServers(t, 1)
	s := newScenarioNode(t, "kubelet", fmt.Sprint(port), servers[0])
	kubelet := s.Program
	const driver = "switch"
	if err := all(claimDriver("POD.io"), claimObjects(deviceClass, claimTemplate))(t.Context(), s,
		driver); err != nil {
		t.Fatal(err)
	}
	s.runClaimed(t, driver, "first")
	s.runClaimed(t, driver, "second")
	want, owed := s.containerIDs(), []string{"prepare first", "prepare second"}
	for i, agent := range []string{"numalet", "kubelet"} {
		if err := s.Node.Stop(); err != nil {
			t.Errorf("the agent before %s stopped: %v", agent, err)
		}
		if s.Program = nil; agent == "kubelet" {
			s.Program = kubelet
		}
		s.Start()
		s.AwaitReady(s.Name)
		// A new pod has the agent look at everything before.
		added := fmt.Sprint("visitor", i)
		s.runClaimed(t, driver, added)
		owed = append(owed, "prepare "+added)
		now := s.containerIDs()
		for pod, id := range want {
			if now[pod] != id {
				t.Errorf("%s: pod %s had container %s, and has %q", agent, pod, id, now[pod])
			}
		}
		ended := []string{"first", "visitor0"}[i]
		if err := remove(-1)(t.Context(), s, ended); err != nil {
			t.Fatal(err)
		}
		owed = append(owed, "unprepare "+ended)
		s.awaitCalls(t, driver, owed)
		// Until it is gone, its agent may not have heard the driver's answer: the next one would ask again.
		harness.Eventually(t, "the pod is gone", func() error {
			_, err := s.Client.CoreV1().Pods(s.Namespace).Get(t.Context(), ended, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(fmt.Errorf("pod %s is there", ended), err)
		})
		now = s.containerIDs()
		delete(now, ended)
		want = now
	}
	for _, left := range []string{"second", "visitor1"} {
		if err := remove(-1)(t.Context(), s, left); err != nil {
			t.Fatal(err)
		}
		owed = append(owed, "unprepare "+left)
		s.awaitCalls(t, driver, owed)
	}
}

// runClaimed runs a pod with a claim of the driver.
func (s *scenarioNode) runClaimed(t *testing.T, driver, name string) {
	t.Helper()
	pod, err := scenario{name: driver, spec: of(oneClaim, usesClaim)}.pod(1, s)
	if err != nil {
		t.Fatal(err)
	}
	pod.Name = name
	s.scheduled(pod)
	if _, err := s.Client.CoreV1().Pods(s.Namespace).Create(t.Context(), pod,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := s.await(t.Context(), name, step{until: isReady, stay: time.Second}); err != nil {
		t.Fatalf("pod %s: %v", name, err)
	}
}

// containerIDs returns the running containers by pod.
func (s *scenarioNode) containerIDs() map[string]string {
	out := map[string]string{}
	for _, c := range s.Runtime.State().Containers {
		if c.Running() {
			out[c.Subject.Pod] += c.Subject.ID
		}
	}
	return out
}

// awaitCalls waits until the driver has had these calls about claims, and no others.
func (s *scenarioNode) awaitCalls(t *testing.T, driver string, owed []string) {
	t.Helper()
	harness.Eventually(t, "the driver has the calls that are owed", func() error {
		var got []string
		for _, c := range first(s, driver).Calls() {
			for _, one := range c.Claims {
				what := map[string]string{drivers.Prepare: "prepare ", drivers.Unprepare: "unprepare "}[c.Method]
				got = append(got, what+strings.Split(one.Name, "-")[0])
			}
		}
		if !slices.Equal(got, owed) {
			return fmt.Errorf("it has %q, owed are %q", got, owed)
		}
		return nil
	})
}
