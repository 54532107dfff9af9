package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"

	"github.com/numalet/numalet/agent/node/eviction"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
)

// absent says what is known of a pod that an agent has not decided on: that its manifest was refused, that no scheduler
// has bound it, or what happened to it. "": nothing is known. An error is that of the API server, if it was to be asked.
func (a *asked) absent(ctx context.Context, readings []podName) (string, error) {
	var problems []complaint.Problem
	if err := a.Get(ctx, &problems, "problems"); err != nil {
		return "", err
	}
	var node eviction.Explanation
	if err := a.Get(ctx, &node, "debug", "shortage"); err != nil {
		return "", err
	}
	var events v1.EventList
	if err := a.Get(ctx, &events, "events"); err != nil {
		return "", err
	}
	var failed error
	for _, n := range readings {
		if text := refused(problems, n, node.Node); text != "" {
			return text, nil
		}
		var text string
		if a.Kubeconfig() {
			var err error
			if text, err = a.inCluster(ctx, n); err != nil {
				failed = errors.Join(failed, err)
			}
		}
		if happened := pastOf(events.Items, n, text == ""); text+happened != "" {
			return text + happened, nil
		}
	}
	return "", failed
}

// refused says why the manifest of a pod was refused: one that names the pod, or whose file has its name.
func refused(all []complaint.Problem, n podName, node string) string {
	for _, p := range all {
		file := strings.TrimSuffix(filepath.Base(p.Name), filepath.Ext(p.Name))
		isIts := p.Name == n.String() || file == n.pod || file+"-"+node == n.pod
		if isIts && p.Reason != manifest.IgnoredField {
			return fmt.Sprintf("There is no pod %s: %s %s: %s: %s\n", n, p.Source, p.Name, p.Reason, p.Message)
		}
	}
	return ""
}

// pastOf lists the last events of a pod; gone: the pod is not known to be elsewhere.
func pastOf(all []v1.Event, n podName, gone bool) string {
	var b strings.Builder
	for _, e := range all {
		of := e.InvolvedObject
		if !isOf(e, n) {
			continue
		}
		if b.Len() == 0 && gone {
			fmt.Fprintf(&b, "Pod %s/%s is gone from the node, or ended before this agent started. What happened\n",
				of.Namespace, of.Name)
		} else if b.Len() == 0 {
			fmt.Fprintf(&b, "What happened to a pod of that name on the node\n")
		}
		fmt.Fprintf(&b, "  %s ago, %s: %s%s\n", duration.HumanDuration(time.Since(e.LastTimestamp.Time)), e.Reason,
			times(e), e.Message)
	}
	return b.String()
}

// inCluster says what the API server has of a pod.
func (a *asked) inCluster(ctx context.Context, n podName) (string, error) {
	config, err := a.Cluster()
	if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	pod, err := client.CoreV1().Pods(n.namespace).Get(ctx, n.pod, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("ask the API server for the pod: %w", err)
	}
	return elsewhere(pod, n), nil
}

// elsewhere says where the API server has a pod that the agent does not have.
func elsewhere(pod *v1.Pod, n podName) string {
	if pod.Spec.NodeName != "" {
		return fmt.Sprintf("Pod %s is bound to node %s, %s: ask that one, with --node %[2]s\n", n, pod.Spec.NodeName,
			strings.ToLower(string(pod.Status.Phase)))
	}
	if len(pod.Spec.SchedulingGates) > 0 {
		var gates []string
		for _, g := range pod.Spec.SchedulingGates {
			gates = append(gates, g.Name)
		}
		return fmt.Sprintf("No scheduler has bound pod %s to a node: its scheduling gates %s keep it\n", n,
			strings.Join(gates, ", "))
	}
	text := fmt.Sprintf("No scheduler has bound pod %s to a node, so no agent has decided on it", n)
	at := slices.IndexFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse
	})
	if at < 0 {
		return text + fmt.Sprintf("; scheduler %s has not said why: does it run?\n", pod.Spec.SchedulerName)
	}
	c := pod.Status.Conditions[at]
	return text + fmt.Sprintf("; scheduler %s says %s: %s\n", pod.Spec.SchedulerName, c.Reason, c.Message)
}
