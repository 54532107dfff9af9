// Package logind is a system bus with a logind and a systemd on it, in memory: for tests of what a
// shutdown does to a node, without the machine's, and for what a real one never does.
//
// It knows the part of D-Bus that a client of logind needs: the greeting, calls, and signals to all
// clients. An inhibitor is the end of a pipe, as with logind.
package logind
