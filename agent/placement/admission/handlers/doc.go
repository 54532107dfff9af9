// Package handlers has the checks that a pod passes before admission looks for resources: the
// kubelet's predicates, the placement that the pod asks for, and what this version cannot give it.
//
// A handler is a pure function of decide.Attempt. A new one is a function here and a line in the
// agent's list of handlers, whose order is the order of the checks.
package handlers
