package agent

import (
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/topology/podspec"
)

// reasonWithoutEffect is the reason of the event that names fields of a pod without effect.
const reasonWithoutEffect = "FieldsWithoutEffect"

// notices tell of each pod once what of its spec has no effect yet, and again when that is more or
// less.
type notices struct {
	tell func(pod *v1.Pod, eventType, reason, message string)

	mu   sync.Mutex
	pods map[types.UID]notice
}

// notice is what was told of a pod.
type notice struct {
	pod    *v1.Pod
	fields string
}

func newNotices(tell func(pod *v1.Pod, eventType, reason, message string)) *notices {
	return &notices{tell: tell, pods: map[types.UID]notice{}}
}

// look is called with a pod each time that its worker looks at it.
func (n *notices) look(pod *v1.Pod) {
	if fields := n.changed(pod); fields != "" {
		n.tell(pod, v1.EventTypeWarning, reasonWithoutEffect,
			"Without effect in this version of numalet: "+fields)
	}
}

// changed are the pod's fields without effect if there are any that were not told.
func (n *notices) changed(pod *v1.Pod) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.pods[pod.UID]
	if was.pod == pod {
		return ""
	}
	is := notice{pod, strings.Join(podspec.WithoutEffect(pod), ", ")}
	n.pods[pod.UID] = is
	if is.fields == was.fields {
		return ""
	}
	return is.fields
}

func (n *notices) gone(pod types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, pod)
}
