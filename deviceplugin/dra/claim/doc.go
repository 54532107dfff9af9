// Package claim has what a pod uses of ResourceClaims, as values.
//
// A pod names claims in spec.resourceClaims, by name or by a template; for a template the control
// plane makes a claim and writes its name into status.resourceClaimStatuses. For extended resources
// that a DeviceClass stands for, the scheduler makes one claim and writes its name, and which
// request is for which container, into status.extendedResourceClaimStatus.
//
// Errors have the kubelet's words.
package claim
