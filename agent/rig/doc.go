// Package rig lets pods come and go on a machine that need not be there, and measures where a
// policy puts them. It is pure: what time an admission takes is asked of a clock that the caller
// brings.
//
//	Site     a machine, the devices and the memory that pods can be given on it
//	Mix      templates of pods with weights and lifetimes     --Generate-->  Stream
//	trace    the same as a file that was recorded or written  --ReadTrace->  Stream
//	Policy   what decides: topology, CPU and memory policies with their options
//	Run      one stream under one policy                      ------------>  Outcome
//
// # Time
//
// Time is virtual. Three kinds of events happen, in this order when they fall together: a pod
// leaves, a pod has waited for too long, a pod arrives. An arrival is decided on by the code that
// the agent itself decides with (allocation.Room). There is no scheduler and no runtime: a pod that
// is admitted holds what it got until its lifetime is over.
//
// Without a wait, a pod that has no place is rejected at once. With one it is tried again whenever
// a pod leaves, in the order of arrival; when one pod has no place, others of the same shape are
// not tried at that moment. It leaves its lifetime after it was admitted, not after it came.
//
// # Same seed, same report
//
// A stream depends on the mix, the site, the seed and the number of pods, and on nothing else. An
// Outcome depends on the stream and the policy. The one exception is Outcome.Timing.
//
// # What is checked
//
// After each admission: no CPU and no device is given out twice, none that is reserved, offline or
// unknown, and as many as were asked for. Every so often, and at the end, what is taken is added up
// again from the pods that run. The first difference ends the run with an error.
package rig
