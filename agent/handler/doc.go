// Package handler does what probes and hooks of containers are made of: commands in a container,
// HTTP requests, TCP connections, gRPC health checks, waiting. It decides nothing: what follows from
// an answer is for those who asked.
//
// What answers may be anybody's: of an answer only so much is read that a person can use, and
// nothing is waited for longer than its context says. Requests over plain HTTP, which are by far the
// most, are made on the caller's goroutine, with a connection each as kubelets make them.
package handler
