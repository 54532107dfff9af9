// Package podworker runs pods as desired.
//
// Each pod has one goroutine, its worker, which repeats one round:
//
//	observe -> step -> report -> act -> observe ...
//
// Changes of probes' results during an action are reported at once.
//
// step is a pure function of the desired state, the runtime's report and the worker's little
// memory. It returns at most one action and the time of the next look. The worker does not record
// what it did, it observes it: it creates no sandbox that exists and starts no container that runs.
// So the agent may be killed at any point and continue from there; attempts and exits come from the
// runtime's records.
//
// Every creation, even a successful one, delays the next one of that container or sandbox: a
// runtime that loses what it made is not asked endlessly.
//
// An action that failed because an object of the API server is missing is tried again when that
// object has changed (Retry). Updating the files in volumes comes after all other actions.
//
// Only about as many pods start at once as the runtime works on (startLimiter).
//
// The worker remembers four things, which a restart of the agent loses: failed actions and when to
// try them again, the end of the current grace period, the attempt from which a container's crashes
// are counted, and what was made recently. After a restart of the agent
//
//   - a failed action is tried at once;
//   - a grace period begins anew;
//   - crashes are counted again from the records the runtime keeps: attempt n is taken for n
//     crashes in a row unless a kept record shows a long run or another definition. A container
//     may then wait longer than without the restart, up to the longest delay, never shorter;
//   - sandboxes are counted again in the same way; containers without a record are forgotten.
//
// A pod that ended by itself (Succeeded, Failed), or that is stopped but not removed, is stopped
// and cleaned up. Its records stay in the runtime until it is removed: its last status is made from
// them.
package podworker
