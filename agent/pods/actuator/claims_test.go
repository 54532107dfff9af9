package actuator

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/podtest"
)

// claimsOf unprepares the claims of one pod, or fails.
type claimsOf struct {
	pod types.UID
	err error
}

func (c *claimsOf) CDI(context.Context, *v1.Pod, string) ([]string, error) {
	return []string{"vendor.com/gpu=claimed"}, c.err
}

func (c *claimsOf) Unprepare(ctx context.Context, pod types.UID) error {
	c.pod = pod
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.err
}

// A failure to unprepare is an event in the words of the error, unless the action was cancelled.
func TestReleaseClaims(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want string
	}{
		"done": {ctx: t.Context()},
		"failed": {t.Context(), errors.New("unprepare dynamic resources: no"), "Warning " +
			"FailedUnprepareDynamicResources Failed to unprepare dynamic resources: " +
			"unprepare dynamic resources: no"},
		"cancelled": {ctx: cancelled},
	} {
		t.Run(name, func(t *testing.T) {
			var reported string
			claims := &claimsOf{err: test.err}
			a := New(Config{Claims: claims, Tell: Tell{
				Event: func(_ *v1.Pod, eventType, reason, message string) {
					reported += eventType + " " + reason + " " + message
				}}})
			pod := podtest.New("p", podtest.UID("uid-p"))
			err := a.releaseClaims(test.ctx, pod)
			if reported != test.want || claims.pod != pod.UID ||
				(err != nil) != (test.err != nil || test.ctx.Err() != nil) {
				t.Errorf("told %q, %v, of pod %s; want %q", reported, err, claims.pod, test.want)
			}
		})
	}
	if err := New(Config{}).releaseClaims(t.Context(), podtest.New("p")); err != nil {
		t.Errorf("a node without claims: %v", err)
	}
}

// What a driver prepared for a container comes before what plugins answered.
func TestClaimedDevices(t *testing.T) {
	pod := podtest.New("p", podtest.Containers("main"))
	s := start{build: build{Actuator: New(Config{Claims: &claimsOf{}}), pod: pod},
		c: &pod.Spec.Containers[0]}
	if got, err := s.devices(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("without claims it gets %v, %v", got, err)
	}
	podtest.Claims("gpu=gpu-1")(pod)
	got, err := s.devices(t.Context())
	if err != nil || len(got) != 1 || len(got[0].CdiDevices) != 1 ||
		got[0].CdiDevices[0].Name != "vendor.com/gpu=claimed" {
		t.Errorf("it gets %v, %v", got, err)
	}
	s.cfg.Claims = &claimsOf{err: errors.New("not prepared")}
	if _, err := s.devices(t.Context()); err == nil || err.Error() != "not prepared" {
		t.Errorf("of a claim that is not prepared: %v", err)
	}
}
