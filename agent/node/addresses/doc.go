// Package addresses finds the node's addresses and follows them: an address that appears late or
// replaces another needs no restart.
package addresses
