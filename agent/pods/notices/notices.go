// Package notices tells of each pod what neither its status nor admission says, once each time:
// fields without effect, a change that the node cannot make, a container that waits to start again,
// a pod that cannot be observed, and one that still exists long after the node ended it.
package notices

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/topology/podspec"
)

// reasonWithoutEffect is the reason of the event that names fields without effect.
const reasonWithoutEffect = "FieldsWithoutEffect"

// leastLate is the least time from the order to end a pod until the pod is late.
const leastLate = 10 * time.Second

// Config holds the receivers of notices. All fields are required, and none may block.
type Config struct {
	Pod       func(pod *v1.Pod, eventType, reason, message string)
	Container func(of podspec.Ref, eventType, reason, message string)
	// Lacking returns the features (KEP-5328) that the node does not have and that changing a pod from
	// one into the other takes.
	Lacking func(was, is *v1.Pod) []string
	// Enabled reports whether a feature gate is on.
	Enabled func(gate string) bool
}

// Notices remembers which notices of a pod were published. Its methods are safe for concurrent use.
type Notices struct {
	cfg Config
	// ended has a value when the node ended a pod. Capacity 1.
	ended chan struct{}

	mu   sync.Mutex // guards pods
	pods map[types.UID]notice
}

// notice is the last notice of a pod.
type notice struct {
	pod     *v1.Pod
	fields  string
	backOff map[string]string // the ids of exited containers that wait, by name
	ended   bool              // the node ended it
	late    time.Time         // when it will be late; zero: not, or that was told
}

// New returns notices that know no pods.
func New(c Config) *Notices {
	return &Notices{cfg: c, ended: make(chan struct{}, 1), pods: map[types.UID]notice{}}
}

// Run tells of late pods until ctx ends.
func (n *Notices) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		late, next := n.lateAt(time.Now())
		for _, pod := range late {
			n.cfg.Pod(pod, v1.EventTypeWarning, "ExceededGracePeriod",
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

// lateAt returns the pods that are late now, each once, and when the next one will be.
func (n *Notices) lateAt(now time.Time) (late []*v1.Pod, next time.Time) {
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

// Look takes a round of a pod's worker.
func (n *Notices) Look(r podworker.Report) {
	warn := func(reason, message string) { n.cfg.Pod(r.Pod, v1.EventTypeWarning, reason, message) }
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
		n.cfg.Container(podspec.Ref{Pod: r.Pod, Container: container}, v1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", container,
				r.Pod.Name, r.Pod.Namespace, r.Pod.UID))
	}
}

// follow notes when a pod that the node ends will be late: half a grace period after its grace
// period.
func (n *Notices) follow(r podworker.Report) {
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

// backOffs returns the exited containers that wait to start again, each once per exit.
func (n *Notices) backOffs(r podworker.Report) (news []string) {
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

// changed compares a pod with what was last seen of it. It returns the fields without effect, if
// they differ from those that were told, and what the node lacks for the change.
func (n *Notices) changed(pod *v1.Pod) (fields string, lacking []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	was := n.pods[pod.UID]
	if was.pod == pod {
		return "", nil
	}
	is := was
	is.pod, is.fields = pod, strings.Join(podspec.WithoutEffect(pod, n.cfg.Enabled), ", ")
	n.pods[pod.UID] = is
	if is.fields != was.fields {
		fields = is.fields
	}
	if was.pod != nil {
		lacking = n.cfg.Lacking(was.pod, pod)
	}
	return fields, lacking
}

// Gone forgets a pod.
func (n *Notices) Gone(pod types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.pods, pod)
}
