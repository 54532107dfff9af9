// Package fit answers which pods would be admitted, and how many of them, without admitting any.
// It places them one after the other on a snapshot of what admission knows, by admission's own
// decision. It is pure but for what it asks of plugins; route.go has the HTTP around it.
package fit
