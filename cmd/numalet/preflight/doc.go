// Package preflight says what would become of a node that a kubelet runs if numalet took it over: whether
// the agent would start with the kubelet's settings, what each of them does, and which pods would wait,
// change or lose something. It changes nothing on the node, and takes no socket or file of the kubelet's.
//
// Look reads the facts, a section each; each section gives findings, and the gravest one decides.
package preflight
