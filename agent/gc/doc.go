// Package gc removes from the container runtime what the node needs no more: images that nothing
// uses, when the disk fills or they have not been used for long, and records of containers beyond
// a bound. What is decided is pure; a part that looks from time to time carries it out.
package gc
