// Package recall remembers over restarts of the agent, and over boots, what each device plugin said
// last and when it was last there. Only a plugin that is there knows its devices and their health;
// while it is away the agent counts with what is remembered, and never with more.
package recall
