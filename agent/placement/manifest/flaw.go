package manifest

import v1 "k8s.io/api/core/v1"

// Flaw says which rule that the node relies on a pod of the API server breaks; "" if none. Such a
// pod is refused in admission, so that its status says why.
func Flaw(p *v1.Pod, gates Gates) string {
	checked := *p
	known := func(gate string) bool { // the API server's own gate has let it pass, and it is harmless
		return gate == tolerationGate || gates.On(gate)
	}
	checked.Spec.EphemeralContainers = nil // a running pod gets them later
	if errs := Validate(&checked, known); len(errs) > 0 {
		return OneLine(errs)
	}
	return ""
}
