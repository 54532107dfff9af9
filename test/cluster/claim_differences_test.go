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
	{Field: "reason|message|events|condition PodReadyToStartContainers", By: histories.Ours,
		Value: "(Normal |#0 False )?WaitingForResource.*|fetch ResourceClaim .*|" +
			"no answer to NodePrepareResources yet .*|.* is not registered.*|Failed to prepare .*",
		Why: "what a pod waits for is told, and why it is not yet: the kubelet has an event at most"},
	{Pod: "extended", Field: "calls (cdi|podresources)",
		Why: "a container gets a CDI device once, even if a driver names it for two devices"},
	{Pod: "end-away", Field: "reason|message|events", By: histories.Ours,
		Value: ".*not registered|FailedUnprepareDynamicResources",
		Why:   "why a pod does not end is told"},
}
