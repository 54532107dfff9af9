package metrics

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/pods/handler"
	"github.com/numalet/numalet/internal/metric/metrictest"
)

// TestHooksAndNamespaces: hooks that fell back to plain HTTP or were cut off in a sleep, sandboxes
// with a user namespace, and ephemeral containers are counted; others are not.
func TestHooksAndNamespaces(t *testing.T) {
	m, registry := fresh(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, brokenOff := handler.New(handler.Config{}).Run(over,
		&v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 60}},
		handler.Target{Pod: &v1.Pod{}, Container: &v1.Container{Name: "c"}})
	m.Hooked(false, brokenOff)
	m.Hooked(false, errors.New("exited with 1"))
	m.Hooked(false, nil)
	m.Hooked(true, nil)
	m.Hooked(true, nil)

	own, host := &v1.Pod{}, &v1.Pod{}
	own.Spec.HostUsers, host.Spec.HostUsers = new(false), new(true)
	m.Started(own, nil, nil)
	m.Started(own, nil, errors.New("no range is left"))
	m.Started(host, nil, errors.New("no network"))
	m.Started(&v1.Pod{}, nil, nil)
	own.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 2)
	m.Pods([]*v1.Pod{own, host}, []*v1.Pod{own})

	for name, want := range map[string]float64{
		"kubelet_lifecycle_handler_http_fallbacks_total":    2,
		"kubelet_sleep_action_terminated_early_total":       1,
		"kubelet_started_user_namespaced_pods_total":        2,
		"kubelet_started_user_namespaced_pods_errors_total": 1,
		"kubelet_started_pods_total":                        4,
		"kubelet_started_pods_errors_total":                 2,
		"kubelet_managed_ephemeral_containers":              2,
	} {
		got := metrictest.Values(t, registry, name)[""]
		if got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
