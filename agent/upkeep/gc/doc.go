// Package gc removes from the container runtime what the node no longer needs: unused images, when
// the disk fills up or after a long time, and exited containers beyond a bound. The decisions are
// pure; periodic looks carry them out.
package gc
