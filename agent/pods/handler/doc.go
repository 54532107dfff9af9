// Package handler carries out the probes and hooks of containers: commands in a container, HTTP
// requests, TCP connections, gRPC health checks, sleeps. It makes no decisions; its callers act on
// the answers.
//
// Answers are not trusted: only a bounded part of an answer is read, and nothing outlasts its
// context. Requests over plain HTTP, by far the most frequent, run on the caller's goroutine, each
// with its own connection as in the kubelet.
package handler
