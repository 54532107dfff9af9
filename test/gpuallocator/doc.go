// Package gpuallocator compares what the GPU plugin prefers with what NVIDIA's go-gpuallocator does,
// on the machines that are data. It is a module of its own, so that numalet does not depend on that
// library, which needs cgo.
package gpuallocator
