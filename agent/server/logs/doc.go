// Package logs answers kubectl logs: what a container wrote, as its runtime keeps it in files.
//
// A log is a row of files: those that were rotated away, the oldest first, compressed but for the
// newest of them, and the one that is written to. Lines are found across all of them. A follower
// keeps the file that it reads open and finds it again by its identity (inode) when it was renamed,
// so that a rotation neither loses nor repeats a line.
package logs
