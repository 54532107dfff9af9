// Package status computes a pod's status. It is pure: the result depends on the pod's spec, on the
// runtime's report and on Input's other facts (why a container does not run, its termination
// message, the previous status).
//
// The pod workers decide with Restarts, NextInit, SandboxProblem and Phase too, so the status and
// the agent's actions agree.
//
// The runtime may have several records of a container, one per attempt. The newest counts, in
// whatever sandbox it ran. Init containers are an exception: they run again in a new sandbox, so
// only their records in the newest sandbox count.
package status
