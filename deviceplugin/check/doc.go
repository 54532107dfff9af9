// Package check does to a device plugin in seconds what a node does to it in months. It uses a real
// device manager in its own directory, without root, a cluster or hardware. "numalet plugin check"
// and a plugin's own tests run the same checks.
//
// A check is an entry of a table (table.go) with a function in the file of its group: what is done,
// what is expected, why that matters on a node, what to do about it, and a function that works on
// the bench and says what happened. The bench holds the plugin, the device manager that serves it,
// and a recorder of every message between them.
//
//	Run: begin -> registration -> list -> allocation -> preference -> start -> lifecycle
//	                                   -> changes -> agent restarts -> scale -> the plugin's end
//
// A plugin that registers several resources goes through that once for each, in a new process.
//
// Checks run in the order of the table. A check is skipped if the failure of another one makes it
// meaningless: a list with a duplicate id says nothing about preferences. So a plugin with one
// mistake fails one check. Before each check the plugin is brought back to its first state: if it
// has ended or is not registered any more, it is started again, and the check in which that
// happened has failed.
//
// A fault that works in the field is at most a warning.
package check
