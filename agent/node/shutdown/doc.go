// Package shutdown ends the node's pods in order when the machine goes down.
//
//	logind, over D-Bus            logind.go    connects, tells of shutdowns, takes inhibitors
//	     v            ^
//	state.step(heard, pods, now)  step.go      pure: which wave of pods ends now and with what grace,
//	     |            | take                   when the inhibitor is taken and released
//	     v            | release
//	End, Tell, State, record      manager.go   the shell
//
// While the agent holds an inhibitor in delay mode (systemd-inhibit(1)), logind announces a
// shutdown and then waits, at most InhibitDelayMaxSec, until the inhibitor is released. In that
// time the pods end in waves (waves.go), from the lowest priority to the highest. A wave is over
// when nothing of its pods is left - no container, no mounted volume, no device whose plugin has
// yet to hear of the release - or when its time is up. After the last one the inhibitor is released
// as soon as the API server knows how the pods have ended, or after three seconds.
//
// The bus may hang, refuse or disappear at any time: its client runs in a goroutine of its own, and
// a shutdown that has begun goes on without it.
package shutdown
