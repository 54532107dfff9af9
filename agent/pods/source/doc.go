// Package source provides pods: from manifests in a directory or a file, from a URL, and from the
// API server (agent/cluster/podsource). Each feed delivers the full set of its pods whenever it may
// have changed; Mux compares it with the previous set and sends the changes to the sync loop.
//
//	file  --set-->  |     |
//	http  --set-->  | Mux | --Update{Op, Source, Pods}-->  sync loop
//	api   --set-->  |     |
//
// Static pods (file and http) are decoded leniently and checked strictly. As with the kubelet,
// unknown fields and duplicate keys are reported and accepted; everything that the API would refuse
// is refused, with the path of the field. A bad manifest affects no other pod. A file that becomes
// unreadable keeps its last good pod until it is good again or gone, and a file that hangs does not
// delay others. All input is bounded (agent/placement/manifest).
//
// The API server has checked its pods. The node checks the rules that it relies on again (Screen),
// reports violations, and refuses such pods in admission (Flaw), so that their status says why.
// Only pods whose names cannot be used on a node are dropped.
//
// Pods handed out are shared: treat them as read-only.
package source
