// Package recall remembers over restarts of the agent, and over boots, what each device plugin said
// last and when it was last there. Only a plugin that is there knows its devices and their health;
// while it is away the agent counts with what is remembered, and never with more.
//
// The device manager says what there is to remember, as values of [Resource], and how long an absent
// plugin's devices count. The package has the rest: the file and its form, its bounds, when it is
// written, and when a plugin was last there that nobody saw go.
package recall
