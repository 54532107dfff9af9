package statuses

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/numalet/numalet/agent/cluster/mirror"
	"github.com/numalet/numalet/agent/cluster/requests"
	"github.com/numalet/numalet/topology/podspec"
)

// send sends the next request about a key.
func (w *world) send(k key) {
	delete(w.dirty, k)
	c := &call{}
	var again time.Time
	if k.uid != "" {
		c.write, again = w.writes.Next(k.uid, w.now)
	} else {
		c.keep, again = w.keeps.Next(k.name, w.now)
	}
	if !again.IsZero() {
		w.later[k] = again
	}
	if c.write.Verb != requests.None || c.keep.Verb != requests.None {
		w.calls[k] = c
	}
}

// carryOut makes the API server carry out the request.
func (w *world) carryOut(c *call) {
	switch c.write.Verb {
	case requests.Get:
		c.got, c.err = w.api.tell(c.write.Pod.Name)
	case requests.Patch:
		c.got, c.err = w.api.patch(c.write)
	case requests.Delete:
		w.mayDelete(c.write.Pod)
		c.err = w.api.delete(c.write.Pod, c.write.Pod.ResourceVersion)
	}
	switch c.keep.Verb {
	case requests.Get, requests.Create:
		c.got, c.err = w.mirrorCall(c.keep, c)
	case requests.Delete:
		c.err = w.api.delete(c.keep.Pod, "")
	}
	c.done = true
}

func (w *world) mirrorCall(q mirror.Request, c *call) (*v1.Pod, error) {
	if q.Verb == requests.Create {
		made := *q.Pod
		made.Annotations = map[string]string{
			podspec.AnnotationMirror: q.Pod.Annotations[podspec.AnnotationHash],
		}
		return w.api.create(&made)
	}
	for k, is := range w.calls {
		if is == c {
			return w.api.tell(k.name.Name)
		}
	}
	return nil, errLost
}

// mayDelete records a violation if a pod is deleted while something of it is here, or before its
// final status is known.
func (w *world) mayDelete(pod *v1.Pod) {
	now := w.api.pods[pod.Name]
	if now == nil || now.UID != pod.UID || now.ResourceVersion != pod.ResourceVersion {
		return
	}
	switch p := w.pods[pod.UID]; {
	case p != nil && !p.Cleared && !w.cleared[pod.UID]:
		w.api.wrong = fmt.Errorf("pod %s was deleted while something of it is here", pod.UID)
	case now.DeletionTimestamp == nil || !podspec.Ended(now.Status.Phase):
		w.api.wrong = fmt.Errorf("pod %s was deleted in phase %s", pod.UID, now.Status.Phase)
	}
}

// answer delivers a request's answer; if lossy, the answer or the request may be lost, or the
// request refused.
func (w *world) answer(k key, lossy bool) {
	c := w.calls[k]
	trouble := 0
	if lossy {
		trouble = w.rand.IntN(8)
	}
	switch {
	case c.done && trouble == 1:
		c.got, c.err = nil, errLost
	case c.done:
	case trouble == 1: // it arrives when nobody waits for it any more
		late := *c
		w.late = append(w.late, func() { w.carryOut(&late) })
		c.err = errLost
	case trouble == 2:
		c.err = errLost
	case trouble == 3:
		c.err = apierrors.NewTooManyRequestsError("slow down")
	default:
		w.api.halfway = lossy && w.rand.IntN(6) == 0
		w.carryOut(c)
		w.api.halfway = false
		if lossy {
			return // its answer is on the way
		}
	}
	delete(w.calls, k)
	var again error
	if k.uid != "" {
		_, again = w.writes.Answered(k.uid, c.write, c.got, c.err, w.now)
	} else {
		again = w.keeps.Answered(k.name, c.keep, c.got, c.err, w.now)
	}
	w.note("%s%s %s%s: %v", k.uid, k.name.Name, c.write.Verb, c.keep.Verb, c.err)
	if again == nil {
		w.dirty[k] = true
	} else {
		w.later[k] = w.now.Add(time.Second)
	}
}

// pick returns one of the keys of a map, chosen by the seed.
func pick[V any](w *world, m map[key]V) (key, bool) {
	if len(m) == 0 {
		return key{}, false
	}
	keys := make([]key, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return compareNames(string(a.uid)+"/"+a.name.Name, string(b.uid)+"/"+b.name.Name)
	})
	return keys[w.rand.IntN(len(keys))], true
}
