// Package addresses finds the node's addresses, and follows them: an address that came late or that
// another one took the place of is told without a restart.
package addresses
