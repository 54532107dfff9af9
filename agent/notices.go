package agent

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// reasonWithoutEffect is the reason of the event that names fields of a pod without effect.
const reasonWithoutEffect = "FieldsWithoutEffect"

// notices tell of each pod once what of its spec has no effect yet, and again when that is more or
// less; and of a container that it waits before it is started again, once each time that it ended.
type notices struct {
	tell        func(pod *v1.Pod, eventType, reason, message string)
	ofContainer func(of podspec.Ref, eventType, reason, message string)

	mu   sync.Mutex
	pods map[types.UID]notice
}

// notice is what was told of a pod.
type notice struct {
	pod     *v1.Pod
	fields  string
	backOff map[string]string // the ids of those that have ended, by container
}

func newNotices(tell func(pod *v1.Pod, eventType, reason, message string),
	ofContainer func(of podspec.Ref, eventType, reason, message string)) *notices {
	return &notices{tell: tell, ofContainer: ofContainer, pods: map[types.UID]notice{}}
}

// look is called each time that a pod's worker looks at it.
func (n *notices) look(r podworker.Report) {
	if fields := n.changed(r.Pod); fields != "" {
		n.tell(r.Pod, v1.EventTypeWarning, reasonWithoutEffect,
			"Without effect in this version of numalet: "+fields)
	}
	for _, container := range n.backOffs(r) {
		n.ofContainer(podspec.Ref{Pod: r.Pod, Container: container}, v1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", container,
				r.Pod.Name, r.Pod.Namespace, r.Pod.UID))
	}
}

// backOffs are the containers that wait since they ended, of which that was not told.
func (n *notices) backOffs(r podworker.Report) (news []string) {
	ended := map[string]string{}
	for container, why := range r.Decision.Waiting {
		if last, ok := r.Observed.Container(container); ok &&
			why.Reason == cri.ReasonCrashLoopBackOff {
			ended[container] = last.ID
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	is := n.pods[r.Pod.UID]
	for container, id := range ended {
		if is.backOff[container] != id {
			news = append(news, container)
		}
	}
	is.backOff = ended
	n.pods[r.Pod.UID] = is
	slices.Sort(news)
	return news
}

// changed are the pod's fields without effect if there are any that were not told.
func (n *notices) changed(pod *v1.Pod) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.pods[pod.UID]
	if was.pod == pod {
		return ""
	}
	is := notice{pod, strings.Join(podspec.WithoutEffect(pod), ", "), was.backOff}
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
