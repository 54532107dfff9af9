// Package admission decides, pod by pod, between three outcomes: admit, wait because, reject.
//
// One goroutine owns the queue. It plans and reserves (pure, on a snapshot, in the order in which
// pods arrived) and never waits for anything: what takes time, a plugin's answer or the durable
// commit, is done by a goroutine per pod that sends back what came of it. So a plugin that hangs
// holds up the pods that need it, and no others.
//
//	          Submit
//	            v                plugin absent, resources about to be released
//	 .----->  queued ------------------------------------------.
//	 |          | plan fits: reserved                          v
//	 |          v                plugin hangs, disk full     waiting --- deadline ---> rejected
//	 |        busy ------------------------------------------> |                          ^
//	 |          | committed                                    | something changed        |
//	 |          v                                              `--> queued                |
//	 |       admitted                                    plan does not fit --------------'
//	 |          | Release
//	 |          v
//	 `----  releasing  -- dropped from the store --> forgotten
//	(again)
//
// A waiting pod whose plugin hangs keeps its reservation. A pod that ran before, with its sandbox
// alive and its assignment recorded under this boot, is adopted: no plan, no Allocate, no write.
// One that is alive and has no record is planned like any other, but what stops the plan does not
// stop the pod: it is admitted with nothing of its own, and a warning says what it lacks.
package admission
