package cluster_test

import "github.com/numalet/numalet/test/cluster/histories"

// meantClaims are the intended differences of pods with resource claims; docs/life-of-a-pod.md lists
// them for users.
var meantClaims = []histories.Meant{
	{Pod: "rejected", Field: "calls driver .*", By: histories.Ours,
		Value: ".* Node(Unp|P)repareResources .*",
		Why:   "claims are prepared beside Allocate, and unprepared if that fails"},
	{Pod: "request", Field: "calls podresources",
		Why: "the kubelet lists a device with the CDI ids of the devices before it, too"},
	{Pod: "away-at-end", Field: "reason|message|events", By: histories.Ours,
		Value: ".*not registered|FailedUnprepareDynamicResources",
		Why:   "why a pod does not end is told"},
}
