// Package source is where pods come from: manifests in a directory or a file, a URL, and (later)
// the API server. Each feed delivers the full set of its pods whenever something changed; Mux
// compares it with the set before and emits what the sync loop has to do.
//
//	file  --set-->  |     |
//	http  --set-->  | Mux | --Update{Op, Source, Pods}-->  sync loop
//	api   --set-->  |     |
//
// Static pods (file and http) are read leniently and checked strictly: unknown fields and
// duplicate keys are reported and accepted, as the kubelet does, anything that the API would
// refuse is refused with the path of the field. One bad manifest disturbs no other pod, and a file
// that was good and is now unreadable keeps the pod it had until it is good again or gone. One that
// hangs keeps nobody waiting. What is read has bounds (limits.go), and is refused before work is
// done for it.
//
// Pods handed out are shared: treat them as read-only.
package source
