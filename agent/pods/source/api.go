package source

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/oneline"
	"github.com/numalet/numalet/topology/podspec"
)

// maxAPIPods bounds the pods that the API server has for this node, including those that have
// ended. Beyond it the oldest count, so that a new pod ends no running one.
const maxAPIPods = 5000

// Screen checks the pods that the API server has for this node. It sets the defaults of an API
// server, reports what is wrong, and drops pods whose names cannot be used on a node. It belongs to
// one goroutine.
type Screen struct {
	gates  manifest.Gates
	ledger ledger
	judged map[*v1.Pod]verdict
}

// verdict is the result for a pod, which is not written to any more.
type verdict struct {
	why  string // "": nothing is wrong
	pass bool
}

// NewScreen returns a Screen with its reports going to report, which must not block. With the gate
// DRANodeAllocatableResources what resource claims bring of CPUs, memory and huge pages counts on this
// node.
func NewScreen(gates manifest.Gates, report func(complaint.Problem)) *Screen {
	return &Screen{gates: gates, ledger: ledger{report: report}}
}

// Pass returns the pods to hand out, the oldest first. It checks only pods that it has not seen;
// the returned pods must not be changed.
func (s *Screen) Pass(pods []*v1.Pod) []*v1.Pod {
	pods = slices.SortedFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			podspec.Compare(a, b))
	})
	judged, passed := make(map[*v1.Pod]verdict, len(pods)), pods[:0]
	var wrong []finding
	for _, p := range pods {
		v, known := s.judged[p]
		if !known {
			v = s.judge(p)
		}
		judged[p] = v
		if v.pass && len(passed) == maxAPIPods {
			v = verdict{why: "the node has too many pods; delete those that have ended"}
		}
		if v.why != "" {
			wrong = append(wrong, finding{Problem: complaint.Problem{Source: podspec.APISource,
				Name:   oneline.Of(p.Namespace + "/" + p.Name),
				Reason: manifest.FailedValidation, Message: v.why}})
		}
		if v.pass {
			passed = append(passed, p)
		}
	}
	s.judged = judged
	s.ledger.now(wrong)
	return passed
}

// judge checks a pod and sets its defaults. The pod must not be shared yet.
func (s *Screen) judge(p *v1.Pod) verdict {
	if !manifest.SafeUID.MatchString(string(p.UID)) {
		return verdict{why: "metadata.uid is not safe as the name of a directory"}
	}
	if len(validation.IsDNS1123Subdomain(p.Name)) > 0 ||
		len(validation.IsDNS1123Label(p.Namespace)) > 0 {
		return verdict{why: "metadata.name or metadata.namespace is none that an API server gives"}
	}
	manifest.SetDefaults(p, s.gates) // as an API server does
	if !s.gates.On("DRANodeAllocatableResources") {
		p.Status.NodeAllocatableResourceClaimStatuses = nil
	}
	if ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed; ended {
		return verdict{pass: true}
	}
	return verdict{why: manifest.Flaw(p, s.gates), pass: true}
}
