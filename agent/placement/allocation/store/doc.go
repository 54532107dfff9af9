// Package store keeps assignments: disk before memory. Commit appends a line to the state file and
// syncs it before State shows the change. A file that cannot be read is moved aside, never deleted.
package store
