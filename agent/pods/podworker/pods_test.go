package podworker

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/internal/podtest"
)

// makePod returns a pod with the restart policy and containers of a line such as
// "Always first side~ | web db".
func makePod(line string) *v1.Pod {
	return podtest.New("ns/pod", podtest.UID("uid"), podtest.Line(line),
		func(p *v1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(30)) })
}
