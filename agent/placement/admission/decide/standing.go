package decide

import (
	v1 "k8s.io/api/core/v1"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/agent/placement/explain"
)

// Standing is a pod that was admitted, with what it would ask for now.
type Standing struct {
	Request
	Wants Demand
	// Ahead and Growth are the snapshot's for this resize.
	Ahead, Growth v1.ResourceList
}

// DryResize decides on a resize as admission would if the pod's source asked for it now.
func (s Snapshot) DryResize(st Standing) Resizing {
	s.Ahead, s.Growth = st.Ahead, st.Growth
	return s.Resize(&st.Request, &st.Wants)
}

// Holds returns what the pod holds once that was decided.
func (st Standing) Holds(d Resizing) allocation.Pod {
	if d.Held != nil {
		return *d.Held
	}
	return st.Own
}

// Sized returns the snapshot once the pod has what it asks for, as was decided.
func (s Snapshot) Sized(st Standing, d Resizing) Snapshot {
	e, _ := s.Ledger.Get(st.In)
	e.Assigned, e.Requests = allocation.HoldingsOf(st.Holds(d)), st.Wants.Requests
	s.Ledger = s.Ledger.With(st.In, e)
	return s
}

// Explain explains what would be decided on a resize.
func (s Snapshot) Explain(st Standing, d Resizing) explain.Record {
	r := st.Request
	r.Demand = st.Wants
	c := explain.Case{Room: s.Now(&r), Pod: r.Pod}
	v := explain.Verdict{Outcome: string(NotResized), Reason: d.Reason, Message: d.Message}
	if d.Reason == "" {
		v.Outcome, c.Plan.Pod = string(Resized), st.Holds(d)
	}
	out := c.Explain()
	out.Verdict, out.Subject.DryRun = v, true
	return out
}
