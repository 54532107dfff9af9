// Package scaffold writes the source of a new device plugin or DRA driver: a Go module that builds, a
// test that uses the kit, a DaemonSet, a script that makes an image, and a file for CI. "numalet plugin
// new" and "numalet driver new" write it. The files are templates below files: those in both are in
// every module.
package scaffold
