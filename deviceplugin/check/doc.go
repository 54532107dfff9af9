// Package check puts a device plugin through what a node does to it in months, in a few seconds: a
// real device manager in a directory of its own, without root, a cluster or hardware. "numalet
// plugin check" and a plugin's own tests use it alike.
//
// A check is a line of a table (table.go) with a function beside those of its group: what is done,
// what is expected, why that matters on a node, what to do about it, and a function of the bench
// that says what happened. The bench has the plugin, the device manager that serves it, and a
// recorder that hears every message between them.
//
//	Run: begin -> registration -> list -> allocation -> preference -> start -> changes
//	                                              -> agent restarts -> scale -> the plugin's end
//
// Checks run in the order of the table. One that another one is in the way of is not made: a list
// with an id twice says nothing about preferences. So a plugin that is wrong in one thing fails one
// check. Before each check the plugin is as in the beginning: one that has ended, or is not
// registered any more, is started again, and the check in which it went wrong has failed.
//
// What works in the field is not failed for taste: that is a warning.
package check
