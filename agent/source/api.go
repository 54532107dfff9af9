package source

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/numalet/numalet/topology/oneline"
	"github.com/numalet/numalet/topology/podspec"
)

// maxAPIPods is how many pods the API server has for this node at most, those that have ended among
// them. Of more the oldest count, so that a new pod ends none that runs.
const maxAPIPods = 5000

// Screen takes the pods that the API server has for this node. It gives them what an API server
// would have, tells what is wrong with them, and leaves out those that nothing on a node could have
// the name of. It belongs to one goroutine.
type Screen struct {
	ledger ledger
	judged map[*v1.Pod]verdict
}

// verdict is what was found out about a pod, which is not written to any more.
type verdict struct {
	why  string // "": nothing is wrong
	pass bool
}

// NewScreen returns one that reports to report, which must not block.
func NewScreen(report func(Problem)) *Screen {
	return &Screen{ledger: ledger{report: report}}
}

// Pass returns the pods to hand out, the oldest first. Only those that it has not seen are looked
// at; pods that it returns are not to be changed any more.
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
			v = judge(p)
		}
		judged[p] = v
		if v.pass && len(passed) == maxAPIPods {
			v = verdict{why: "the node has too many pods; delete those that have ended"}
		}
		if v.why != "" {
			wrong = append(wrong, finding{Problem: Problem{Source: APISource,
				Name:   oneline.Of(p.Namespace + "/" + p.Name),
				Reason: FailedValidation, Message: v.why}})
		}
		if v.pass {
			passed = append(passed, p)
		}
	}
	s.judged = judged
	s.ledger.now(wrong)
	return passed
}

func judge(p *v1.Pod) verdict {
	if !safeUID.MatchString(string(p.UID)) {
		return verdict{why: "metadata.uid is not safe as the name of a directory"}
	}
	if len(validation.IsDNS1123Subdomain(p.Name)) > 0 ||
		len(validation.IsDNS1123Label(p.Namespace)) > 0 {
		return verdict{why: "metadata.name or metadata.namespace is none that an API server gives"}
	}
	setDefaults(p) // an API server has done so
	if ended := p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed; ended {
		return verdict{pass: true}
	}
	return verdict{why: Flaw(p), pass: true}
}

// Flaw says what of a pod of the API server is against the rules that the node relies on; "":
// nothing. Such a pod is refused when it is decided on, so that its status says why.
func Flaw(p *v1.Pod) string {
	checked := *p
	checked.Spec.EphemeralContainers = nil // which a pod gets when it runs
	if errs := validatePod(&checked); len(errs) > 0 {
		return oneLine(errs)
	}
	return ""
}
