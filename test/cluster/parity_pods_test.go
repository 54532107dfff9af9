package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
)

// make creates the pod; false: the API server does not accept it.
func (s *side) make(t *testing.T, pod *v1.Pod) bool {
	t.Helper()
	pod = s.own(t, pod)
	if pod.Spec.NodeName = s.Name; len(pod.Spec.ResourceClaims) > 0 {
		pod.Spec.NodeName = "" // the scheduler allocates claims
		pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: s.Name}
	}
	added := pod.Spec.EphemeralContainers
	pod.Spec.EphemeralContainers = nil
	_, err := s.Client.CoreV1().Pods(s.Namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	if err == nil && len(added) > 0 {
		err = s.add(t.Context(), pod.Name, added)
	}
	if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	if err != nil {
		t.Logf("%s (%s): %v", pod.Name, pod.Annotations[variantsNote], err)
	}
	return err == nil
}

// own returns the pod for this node.
func (s *side) own(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	if s.answers == nil {
		return pod.DeepCopy()
	}
	raw, err := json.Marshal(pod)
	out := &v1.Pod{}
	if err == nil {
		err = json.Unmarshal(bytes.ReplaceAll(raw, []byte(sideAddress), []byte(s.answers.address)), out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// add adds ephemeral containers to a pod.
func (s *side) add(ctx context.Context, name string, added []v1.EphemeralContainer) error {
	pods := s.Client.CoreV1().Pods(s.Namespace)
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			pod.Spec.EphemeralContainers = added
			_, err = pods.UpdateEphemeralContainers(ctx, name, pod, metav1.UpdateOptions{})
		}
		return err
	})
}

// makeAll creates pods on both nodes, and returns those that the API server accepts.
func makeAll(t *testing.T, sides []*side, pods []*v1.Pod) []*v1.Pod {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(pods), func(pod *v1.Pod) bool {
		taken := sides[0].make(t, pod)
		return !taken || !sides[1].make(t, pod)
	})
}
