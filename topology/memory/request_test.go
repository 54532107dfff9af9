package memory_test

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
	"github.com/numalet/numalet/topology"
	"github.com/numalet/numalet/topology/memory"
)

func TestRequests(t *testing.T) {
	of := func(containers ...string) *v1.Pod { return podtest.New("", podtest.Containers(containers...)) }
	podLevel := podtest.New("", podtest.Containers("c cpu=1 memory=1Gi"), podtest.Resources("cpu=1 memory=1Gi"))
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		want wants
	}{
		{"guaranteed", of("c cpu=100m memory=1Gi"), want(1)},
		{"huge pages", of("c cpu=1 memory=1Gi hugepages-2Mi=1Gi x.io/y=1"),
			wants{v1.ResourceMemory: gib, pages: gib}},
		{"no pages", of("c cpu=1 memory=1Gi hugepages-2Mi=0"), want(1)},
		{"burstable", of("c cpu=1 memory=512Mi..1Gi"), nil},
		{"beside one without limits", of("c cpu=1 memory=1Gi", "bare"), nil},
		{"pod level", podLevel, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := memory.Requests(test.pod, &test.pod.Spec.Containers[0], topology.Rules{})
			if diff := gocmp.Diff(test.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestPodRequests(t *testing.T) {
	const (
		small, large = "c cpu=1 memory=1Gi", "i! cpu=1 memory=4Gi"
		sidecar      = "s~ cpu=1 memory=2Gi"
		paged        = "i! cpu=1 memory=1Gi hugepages-2Mi=1Gi"
	)
	for name, test := range map[string]struct {
		containers []string
		want       wants
	}{
		"sum":                                {[]string{small, "d cpu=1 memory=4Gi"}, want(5)},
		"a large init container":             {[]string{large, small}, want(4)},
		"sidecars count with the containers": {[]string{sidecar, small, small}, want(4)},
		"and with later init containers":     {[]string{sidecar, large, small}, want(6)},
		"but not with earlier ones":          {[]string{large, sidecar, small}, want(4)},
		"pages of init containers only":      {[]string{paged, small}, wants{v1.ResourceMemory: gib, pages: gib}},
		"not guaranteed":                     {[]string{"c memory=1Gi"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podtest.New("", podtest.Containers(test.containers...))
			if diff := gocmp.Diff(test.want, memory.PodRequests(pod, topology.Rules{})); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}
