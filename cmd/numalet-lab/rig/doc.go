// Package rig lets pods arrive and leave on a simulated machine, and measures where a policy places
// them. It is pure: the caller passes in the clock that times admissions.
//
//	Site     a machine, the devices and the memory that pods can be given on it
//	Mix      templates of pods with weights and lifetimes     --Generate-->  Stream
//	trace    the same as a file that was recorded or written  --ReadTrace->  Stream
//	Policy   what decides: topology, CPU and memory policies with their options
//	Run      one stream under one policy                      ------------>  Outcome
//
// # Time
//
// Time is virtual. There are four kinds of events; at the same time they happen in this order: a
// pod leaves, a pod asks for other resources, a pod has waited too long, a pod arrives. The agent's
// own code decides on arrivals (allocation.Room), and on resizes the agent's line (resizing), which
// has all running pods. There is no runtime: an admitted pod holds its resources until its lifetime is
// over. Of a scheduler there is what chooses the devices of resource claims (scheduler), before the
// node decides.
//
// Without a wait, a pod for which there is no place is rejected at once. With one it is tried again
// whenever a pod leaves, in the order of arrival; once one pod finds no place, others of its shape
// are not tried at that moment. Its lifetime starts when it is admitted, not when it arrives.
//
// # Resizes
//
// A pod has its new resources as soon as the line allocates them: there is no runtime that could
// lag behind. Deferred resizes come before pods that wait. What a mix's pods ask for later is drawn
// apart from the pods, so that the same pods come without it.
//
// # Same seed, same report
//
// A stream depends only on the mix, the site, the seed and the number of pods. An Outcome depends
// only on the stream and the policy, except for Outcome.Timing.
//
// # What is checked
//
// After each admission: no CPU or device is given out twice, by a plugin or a claim, none is
// reserved, offline or unknown, and the number is the one asked for. A pod has a pool if one is due to it,
// and its containers have parts of that, or share what these leave. From time to time, and at the
// end, the resources taken are summed up again over the running pods. The first difference ends the
// run with an error.
package rig
