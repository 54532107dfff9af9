// Package status computes a pod's status. It is pure: everything is a function of the pod's spec,
// of what the runtime reports, and of the little that others know (why a container is not
// running, what it wrote as its termination message, what was said before).
//
// Restarts, NextInit, SandboxProblem and Phase are also what the pod workers decide by, so what
// the status says and what the agent does cannot disagree.
//
// Of a container the runtime may have several records, one per attempt. The newest one counts,
// wherever it ran, with one exception: init containers run again in a new sandbox, so for them
// only records of the newest sandbox count.
package status
