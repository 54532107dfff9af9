package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// reasonWithoutEffect is the reason of the event that names fields of a pod without effect.
const reasonWithoutEffect = "FieldsWithoutEffect"

// leastLate is how long after its end was ordered a pod of the shortest grace period is late.
const leastLate = 10 * time.Second

// noticesConfig is whom notices are told, and what they are made of.
type noticesConfig struct {
	pod       func(pod *v1.Pod, eventType, reason, message string)
	container func(of podspec.Ref, eventType, reason, message string)
	// lacking are the features of the node (KEP-5328) that it takes to change a pod from one into the
	// other, and that the node does not have.
	lacking func(was, is *v1.Pod) []string
}

// notices tell of each pod once what of its spec has no effect yet, and again when that is more or
// less; of a change of it that the node cannot make; of a container that it waits before it is
// started again, once each time that it ended; that the pod could not be looked at; and that it is
// still there long after the node had ended it.
type notices struct {
	cfg noticesConfig
	// ended has a value when the node has ended a pod. Capacity 1.
	ended chan struct{}

	mu   sync.Mutex
	pods map[types.UID]notice
}

// notice is what was told of a pod.
type notice struct {
	pod     *v1.Pod
	fields  string
	backOff map[string]string // the ids of those that have ended, by container
	ended   bool              // by the node
	late    time.Time         // when it is late; zero: it is not, or that was told
}

func newNotices(c noticesConfig) *notices {
	return &notices{cfg: c, ended: make(chan struct{}, 1), pods: map[types.UID]notice{}}
}

// run tells of pods that are late, until ctx ends.
func (n *notices) run(ctx context.Context) error {
	for ctx.Err() == nil {
		late, next := n.lateAt(time.Now())
		for _, pod := range late {
			n.cfg.pod(pod, v1.EventTypeWarning, "ExceededGracePeriod",
				"Container runtime did not kill the pod within specified grace period.")
		}
		select {
		case <-ctx.Done():
		case <-n.ended:
		case <-await.At(next):
		}
	}
	return nil
}

// lateAt are the pods that are late now, each once, and when the next one will be.
func (n *notices) lateAt(now time.Time) (late []*v1.Pod, next time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for uid, is := range n.pods {
		switch {
		case is.late.IsZero():
		case is.late.After(now):
			next = await.Earlier(next, is.late)
		default:
			is.late = time.Time{}
			n.pods[uid] = is
			late = append(late, is.pod)
		}
	}
	return late, next
}

// look is called each time that a pod's worker looks at it.
func (n *notices) look(r podworker.Report) {
	warn := func(reason, message string) { n.cfg.pod(r.Pod, v1.EventTypeWarning, reason, message) }
	fields, lacking := n.changed(r.Pod)
	if fields != "" {
		warn(reasonWithoutEffect, "Without effect in this version of numalet: "+fields)
	}
	if len(lacking) > 0 {
		warn("FailedNodeDeclaredFeaturesCheck", "Pod requires node features that are not available: "+
			strings.Join(lacking, ", "))
	}
	if r.Err != nil {
		warn("FailedSync", "error determining status: "+r.Err.Error())
		return
	}
	n.follow(r)
	for _, container := range n.backOffs(r) {
		n.cfg.container(podspec.Ref{Pod: r.Pod, Container: container}, v1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", container,
				r.Pod.Name, r.Pod.Namespace, r.Pod.UID))
	}
}

// follow tells once of a pod that the node has ended and that is not gone half a grace period after the
// end of that.
func (n *notices) follow(r podworker.Report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	is := n.pods[r.Pod.UID]
	switch finished := r.Decision.State == podworker.Finished; {
	case finished:
		is.late = time.Time{}
	case !is.ended && r.Stop != nil && r.Stop.Reason != "":
		is.ended, is.late = true, time.Now().Add(max(leastLate, r.Stop.Grace*3/2))
		await.Wake(n.ended)
	}
	n.pods[r.Pod.UID] = is
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

// changed are, of a pod that was not seen as it is now, the fields without effect if there are any that
// were not told, and what the node lacks for the change.
func (n *notices) changed(pod *v1.Pod) (fields string, lacking []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.pods[pod.UID]
	if was.pod == pod {
		return "", nil
	}
	is := was
	is.pod, is.fields = pod, strings.Join(podspec.WithoutEffect(pod), ", ")
	n.pods[pod.UID] = is
	if is.fields != was.fields {
		fields = is.fields
	}
	if was.pod != nil {
		lacking = n.cfg.lacking(was.pod, pod)
	}
	return fields, lacking
}

func (n *notices) gone(pod types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, pod)
}
