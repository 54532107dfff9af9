package source

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/placement/manifest"
	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/topology/podspec"
)

// member is a pod of a source: as the feed delivered it, and as it was handed out.
type member struct{ given, pod *v1.Pod }

// merge compares a new full set with the previous one. It returns the members to keep, the updates
// to send in order, and a problem for each pod that is left out. It does not change its arguments.
func merge(source string, old map[types.UID]member, pods []*v1.Pod, now time.Time) (
	next map[types.UID]member, updates []Update, left []finding) {
	next = make(map[types.UID]member, len(pods))
	names := make(map[types.NamespacedName]bool, len(pods))
	byOp := map[Op][]*v1.Pod{}
	for _, given := range pods {
		name := podspec.Name(given)
		_, sameUID := next[given.UID]
		if why := clash(names[name], sameUID, given); why != "" {
			left = append(left, finding{Problem: complaint.Problem{Source: source, Name: name.String(),
				Reason: manifest.FailedValidation, Message: why}})
			continue
		}
		names[name] = true
		was, known := old[given.UID]
		if known && !pod.Same(was.pod, given) {
			was, known = member{}, false // another pod that has taken over the UID
		}
		if known && was.given == given {
			next[given.UID] = was
			continue
		}
		mine := local(source, given, was.pod, now)
		op := ADD
		if known {
			op = compare(was.pod, mine)
			if op == "" && source == FileSource {
				op = RETRY // an unchanged file yields the same pointer
			}
		}
		next[given.UID] = member{given: given, pod: mine}
		byOp[op] = append(byOp[op], mine)
	}
	for uid, was := range old {
		if is, ok := next[uid]; !ok || !pod.Same(is.pod, was.pod) {
			byOp[REMOVE] = append(byOp[REMOVE], was.pod)
		}
	}
	slices.SortFunc(byOp[REMOVE], podspec.Compare)
	// Updates that free resources come first, since others may need these.
	for _, op := range []Op{REMOVE, DELETE, RECONCILE, ADD, UPDATE, RETRY} {
		first := op == ADD && old == nil
		if len(byOp[op]) > 0 || first {
			updates = append(updates, Update{Op: op, Source: source, Pods: byOp[op]})
		}
	}
	return next, updates, left
}

// clash says why the pod conflicts with earlier pods of its set.
func clash(sameName, sameUID bool, pod *v1.Pod) string {
	switch {
	case sameName:
		return "another pod of the source has the same namespace and name; rename one of them"
	case sameUID:
		return fmt.Sprintf("another pod of the source has the same UID %s; change metadata.uid",
			pod.UID)
	default:
		return ""
	}
}

// local returns the pod with the annotations of this node. It keeps the time at which the pod was
// first seen. Pods of the API server lose the annotations that only the agent writes: users who may
// patch a pod must not speak for the agent.
func local(source string, given, was *v1.Pod, now time.Time) *v1.Pod {
	seen := now.Format(time.RFC3339Nano)
	if was != nil {
		seen = was.Annotations[AnnotationSeen]
	}
	pod := *given
	pod.Annotations = maps.Clone(given.Annotations)
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	if source == podspec.APISource {
		maps.DeleteFunc(pod.Annotations,
			func(name, _ string) bool { return podspec.IsAgentAnnotation(name) })
	}
	pod.Annotations[podspec.AnnotationSource] = source
	pod.Annotations[AnnotationSeen] = seen
	return &pod
}

// compare returns the operation that leads from one version of a pod to the next, "" if none.
func compare(was, now *v1.Pod) Op {
	same := apiequality.Semantic.DeepEqual
	switch {
	case !same(was.Spec, now.Spec) || !same(was.Labels, now.Labels) ||
		!same(was.DeletionTimestamp, now.DeletionTimestamp) ||
		!same(was.DeletionGracePeriodSeconds, now.DeletionGracePeriodSeconds) ||
		!sharedAnnotationsEqual(was.Annotations, now.Annotations):
		if now.DeletionTimestamp != nil {
			return DELETE
		}
		return UPDATE
	case !same(was.Status, now.Status):
		return RECONCILE
	default:
		return ""
	}
}

// sharedAnnotationsEqual ignores the annotations of this node.
func sharedAnnotationsEqual(a, b map[string]string) bool {
	shared := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		for _, key := range []string{podspec.AnnotationSource, AnnotationSeen, podspec.AnnotationHash,
			AnnotationManifest} {
			delete(m, key)
		}
		return m
	}
	return maps.Equal(shared(a), shared(b))
}
