package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cmd/numalet-lab/crisim"
	"github.com/numalet/numalet/test/harness"
)

// Conditions for which steps of scenarios wait.

func there(*v1.Pod) bool { return true }

func isPhase(phase v1.PodPhase) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool { return p.Status.Phase == phase }
}

// is returns whether a container is in such a state, with at least so many restarts.
func is(container string, restarts int32, in func(v1.ContainerState) bool) func(*v1.Pod) bool {
	return func(p *v1.Pod) bool {
		for _, c := range append(statuses(p), p.Status.EphemeralContainerStatuses...) {
			if c.Name == container {
				return c.RestartCount >= restarts && in(c.State)
			}
		}
		return false
	}
}

func running(s v1.ContainerState) bool { return s.Running != nil }

func terminated(s v1.ContainerState) bool { return s.Terminated != nil }

func waiting(reasons ...string) func(v1.ContainerState) bool {
	return func(s v1.ContainerState) bool {
		return s.Waiting != nil && strings.Contains(strings.Join(reasons, " "), s.Waiting.Reason)
	}
}

func isReady(p *v1.Pod) bool { return runs(p) }

func isNotReady(p *v1.Pod) bool { return !runs(p) }

func isDeleted(p *v1.Pod) bool { return p.DeletionTimestamp != nil }

// Actions of scenarios.

// remove deletes the pod with this grace period in seconds; -1: its own.
func remove(grace int64) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		options := metav1.DeleteOptions{}
		if grace >= 0 {
			options.GracePeriodSeconds = &grace
		}
		err := s.Client.CoreV1().Pods(s.Namespace).Delete(ctx, pod, options)
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return err
	}
}

func evict(ctx context.Context, s *scenarioNode, pod string) error {
	return s.Client.PolicyV1().Evictions(s.Namespace).Evict(ctx,
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: s.Namespace}})
}

// drain runs kubectl drain for the pod alone, and stops it when the pod is gone.
func drain(_ context.Context, s *scenarioNode, pod string) error {
	for _, command := range [][]string{
		{"label", "pod", pod, "drained=" + pod},
		{"drain", s.Name, "--pod-selector=drained=" + pod, "--force"},
		{"uncordon", s.Name},
	} {
		if _, err := s.Run(command...); err != nil {
			return err
		}
	}
	return nil
}

// patch changes the pod by a strategic merge patch.
func patch(text string, subresources ...string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		_, err := s.Client.CoreV1().Pods(s.Namespace).Patch(ctx, pod,
			types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{}, subresources...)
		return err
	}
}

func useImage(container, name string) act {
	return patch(fmt.Sprintf(`{"spec":{"containers":[{"name":%q,"image":%q}]}}`, container, name))
}

func gate(status v1.ConditionStatus) act {
	return patch(fmt.Sprintf(`{"status":{"conditions":[{"type":"example.com/gate","status":%q}]}}`,
		status), "status")
}

// exit ends a container as if its process had ended.
func exit(container string, how crisim.Exit) act {
	return func(_ context.Context, s *scenarioNode, pod string) error {
		return s.Runtime.Exit(pod+"/"+container, how)
	}
}

func killSandbox(_ context.Context, s *scenarioNode, pod string) error {
	return s.Runtime.KillSandbox(s.Namespace + "/" + pod)
}

func sicken(_ context.Context, s *scenarioNode, pod string) error {
	s.answers.sicken(pod)
	return nil
}

// debug adds an ephemeral container.
func debug(spec v1.EphemeralContainerCommon) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		return s.add(ctx, pod, []v1.EphemeralContainer{{EphemeralContainerCommon: spec}})
	}
}

// object creates a ConfigMap or Secret for which pods wait.
func object(kind, name string) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		meta := metav1.ObjectMeta{Name: strings.ReplaceAll(name, "POD", pod)}
		var err error
		switch kind {
		case "ConfigMap":
			_, err = s.Client.CoreV1().ConfigMaps(s.Namespace).Create(ctx,
				&v1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"k": "v"}}, metav1.CreateOptions{})
		case "Secret":
			_, err = s.Client.CoreV1().Secrets(s.Namespace).Create(ctx,
				&v1.Secret{ObjectMeta: meta, StringData: map[string]string{"k": "v"}}, metav1.CreateOptions{})
		}
		return err
	}
}

// rewrite changes the manifest of a static pod.
func rewrite(change func(*v1.Pod)) act {
	return func(_ context.Context, s *scenarioNode, pod string) error {
		now := s.seen(pod)
		manifest := ordinaryPod(strings.TrimSuffix(pod, "-"+s.Name))
		manifest.Namespace = s.Namespace
		if now != nil {
			manifest.Spec.Containers = now.Spec.Containers
		}
		change(manifest)
		return s.manifest(manifest)
	}
}

// writeAgain removes the manifest of a static pod, and writes it again when the pod has come so far.
func writeAgain(when func(s *scenarioNode, pod string) bool) act {
	return func(ctx context.Context, s *scenarioNode, pod string) error {
		ctx, cancel := context.WithTimeout(ctx, harness.Patience)
		defer cancel()
		name := strings.TrimSuffix(pod, "-"+s.Name)
		path := filepath.Join(s.Manifests, name+".yaml")
		manifest, err := os.ReadFile(path)
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			return err
		}
		for !when(s, pod) {
			if !sleep(ctx, 10*time.Millisecond) {
				return ctx.Err()
			}
		}
		s.Node.Pod(name, string(manifest))
		return nil
	}
}

// beingStopped reports whether the runtime was told to stop a container of the pod.
func beingStopped(s *scenarioNode, pod string) bool {
	return slices.ContainsFunc(s.Runtime.Journal(0), func(c crisim.Call) bool {
		return c.Method == "StopContainer" && c.Subject.Pod == pod
	})
}

// trouble makes the runtime fail calls about the pod.
func trouble(f crisim.Fault) act {
	return func(_ context.Context, s *scenarioNode, pod string) error {
		f := f
		f.Pod = pod
		return s.Runtime.SetFault(f)
	}
}
