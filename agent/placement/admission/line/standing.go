package line

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/admission/decide"
	"github.com/numalet/numalet/agent/placement/admission/record"
	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/topology/podspec"
)

// Standing returns the admitted pod of that name with the requests and limits of asked, as it would count if its
// source asked for these now. Nothing changes. ok is false if there is none; a static pod counts for none, since
// its source makes another pod with other requests.
func (l *Line) Standing(asked *v1.Pod) (st decide.Standing, ok bool) {
	for _, e := range l.Order {
		if e.Pod.Namespace == asked.Namespace && e.Pod.Name == asked.Name && !e.Static &&
			(e.State == record.Admitted || e.State == record.Resizing) {
			return resizes{l}.standing(e, asked), true
		}
	}
	return st, false
}

func (l resizes) standing(e *Entry, asked *v1.Pod) decide.Standing {
	now, next := l.Clock(), e.Record
	wants := l.demandOf(podspec.ResourcesOf(asked).In(e.Pod))
	next.Resize = record.Resize{Wanted: &wants, Since: now}
	st := decide.Standing{Request: l.Request(e), Wants: wants, Ahead: l.claims().to(now)}
	for _, o := range l.Order {
		if o != e && o.Resizes() && o.Resize.Promised && record.CompareResizes(&o.Record, &next) <= 0 {
			st.Growth = allocation.AddRequests(st.Growth, o.Grows())
		}
	}
	return st
}
