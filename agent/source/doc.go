// Package source is where pods come from: manifests in a directory or a file, a URL, and the API
// server (agent/kubeapi/podsource). Each feed delivers the full set of its pods whenever something
// changed; Mux compares it with the set before and emits what the sync loop has to do.
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
// Pods of the API server have gone through its rules. What is against a rule that the node relies
// on is found all the same (Screen), reported, and refused when the pod is decided on (Flaw), so
// that its status says why; only a pod whose names nothing on a node could have is left out.
//
// Pods handed out are shared: treat them as read-only.
package source
