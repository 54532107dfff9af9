// Package podworker brings pods to what is desired of them and keeps them there.
//
// Each pod has one goroutine that does the same round over and over:
//
//	observe -> step -> report -> act -> observe ...
//
// What probes find while an action is under way is reported at once.
//
// step is a pure function of what is desired, what the runtime reports and what little the worker
// remembers. It gives at most one action and the time to look again. What was done before is
// never recorded, it is observed: a sandbox that exists is not created again, a container that
// runs is not started again. So the agent may be killed at any point and enters again where it
// was; attempts and exits come from the runtime's records.
//
// Every creation, also one that succeeds, sets when the next one of that container or sandbox is
// due: a runtime that loses or spoils what it is asked for is not asked without end.
//
// What failed for want of an object of the API server is tried again when that has changed (Retry).
// Files in volumes of a pod that runs are brought up to date when they are due, as the last thing.
//
// Of pods that are to start only about as many do at once as the runtime works on (starts).
//
// Four things are remembered, and lost with the agent: actions that failed and when to
// try them again, the end of a grace period under way, the attempt from which a container's
// crashes are counted, and what was made of late. After a restart of the agent
//
//   - a failed action is tried at once;
//   - a grace period begins anew;
//   - crashes are counted again from the records the runtime keeps: attempt n is taken for n
//     crashes in a row unless a kept record shows a long run or another definition. A container
//     may then wait longer than without the restart, up to the longest delay, never shorter;
//   - sandboxes are counted again likewise; containers that left no record are forgotten.
//
// A pod that ended by itself (Succeeded, Failed), or is to be stopped but not removed, is stopped
// and cleaned up, and its records stay in the runtime until it is to be removed: they are what its
// last status is made from.
package podworker
