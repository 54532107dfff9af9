package handlers

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/agent/pods/source"
	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/podspec"
)

// TestFlaws: a pod of the API server that breaks a rule is refused in words, and another source's
// is not looked at.
func TestFlaws(t *testing.T) {
	bad := podtest.New("", podtest.Source(podspec.APISource), podtest.Spec(v1.PodSpec{
		TerminationGracePeriodSeconds: new(int64), SecurityContext: &v1.PodSecurityContext{}}))
	got := Flaws(nil)(decide.Attempt{Demand: decide.DemandOf(bad, nil, topology.Rules{})})
	if got == nil || got.Reason != manifest.FailedValidation || got.Message == "" || got.Wait {
		t.Errorf("a pod without a name, a UID and containers: %+v", got)
	}
	podtest.Source(source.FileSource)(bad)
	if got := Flaws(nil)(decide.Attempt{Demand: decide.DemandOf(bad, nil, topology.Rules{})}); got != nil {
		t.Errorf("a static pod: %+v", got)
	}
}
