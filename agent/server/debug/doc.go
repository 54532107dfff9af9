// Package debug has what tells of the agent itself: its configuration, flags and build, its profiles,
// and how much it logs.
package debug
