// Package podresources tells monitoring agents which CPUs and devices the node's pods hold: the
// kubelet's gRPC services PodResourcesLister v1 and v1alpha1 (KEP-606, KEP-2043, KEP-3695), on
// <root>/pod-resources/kubelet.sock.
//
// Answers are pure functions of a Snapshot. They hold active pods only; cpu_ids are CPUs of a
// container's own. Memory and dynamic resources are not assigned yet and stay empty.
package podresources
