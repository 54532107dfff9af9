package cluster_test

import (
	"slices"

	"github.com/numalet/numalet/test/cluster/histories"
)

// meantClaims are the intended differences of pods with resource claims; docs/resource-claims.md lists
// them for users, with the differences of all pods in docs/pod-fields.md.
var meantClaims = slices.Concat(meantClaimWaits, meantClaimDevices, meantClaimEnds)

var meantClaimWaits = []histories.Meant{
	{Pod: "rejected", Field: "calls driver .*", By: histories.Ours,
		Value: ".* Node(Unp|P)repareResources .*",
		Why:   "claims are prepared beside Allocate, and unprepared if that fails"},
	{Field: "reason|message|events|condition PodReadyToStartContainers", By: histories.Ours,
		Value: "(Normal |#0 False )?WaitingForResource.*|fetch ResourceClaim .*|" +
			"no answer to NodePrepareResources yet .*|.* is not registered.*|Failed to prepare .*|" +
			"pod .* is not allowed to use ResourceClaim .*",
		Why: "what a pod waits for is told, and why it is not yet: the kubelet has an event at most"},
	{Field: "events", By: histories.Theirs, Value: "Warning FailedPrepareDynamicResources: .*" +
		"(fetch ResourceClaim .*|is not registered|is not allowed to use .*|code = Unavailable .*)",
		Why: "the same: a pod waits, and nothing has failed"},
	{Field: "condition PodReadyToStartContainers", By: histories.Theirs,
		Value:  "#0 False PodSandboxNotReady: no pod sandbox exists",
		Beside: "#0 False WaitingForResource.*", Seldom: true, Why: "the same"},
	{Field: "events", Value: "Warning FailedResourceClaimCreation: .*", Seldom: true,
		Why: "the controller that makes claims may see a pod before its template"},
	{Pod: "fails", Field: "calls driver .*", Value: ".* NodePrepareResources .*: it is broken",
		By: histories.Theirs, Seldom: true, Why: "after which pauses it is tried again"},
}

var meantClaimDevices = []histories.Meant{
	{Pod: "request|sick", Field: "calls podresources",
		Why: "the kubelet lists a device with the CDI ids of the devices before it, too"},
	{Pod: "sick|init", Field: "calls health of init",
		Why: "the kubelet's status has nothing of the claims of init containers and sidecars"},
	{Pod: "extended|sick", Field: "events", By: histories.Ours, Value: "Warning DeviceUnhealthy: .*",
		Why: "that a device has failed is told by an event"},
	{Pod: "extended", Field: "calls (cdi|podresources)",
		Why: "a container gets a CDI device once, even if a driver names it for two devices"},
}

var meantClaimEnds = []histories.Meant{
	{Field: "reason|message|events", By: histories.Ours,
		Value: "(Warning )?FailedUnprepareDynamicResources.*|unprepare dynamic resources: .*|" +
			".*not registered",
		Why: "why a pod does not end is told"},
	{Pod: "slow-deleted", By: histories.Theirs, Field: "calls( main)?|starts",
		Value: "(Run|Stop)PodSandbox.*|(Create|Start|Stop)Container.*",
		Why:   "a pod that is deleted while a driver prepares is not started any more"},
	{Pod: "slow-deleted", Field: "container main .*|condition .*|seen|ips?|phase", Seldom: true,
		Why: "the same"},
	{Pod: "slow-deleted", By: histories.Theirs, Field: "events spec.containers{main}",
		Value: "Normal (Pulled|Created|Started|Killing): .*", Why: "the same"},
	{Pod: "restart-forced", Field: "events( spec.containers{main})?", Value: "Normal Killing: .*",
		Seldom: true,
		Why:    "the event of a container whose pod is gone is one of the pod, docs/life-of-a-pod.md"},
	{Pod: "restart-ended", Field: "ips?", Value: "none|0", By: histories.Theirs, Seldom: true,
		Why: "a pod that has ended keeps its status; the kubelet loses its address"},
	{Pod: "restart-ended", Field: "calls claim .*", Value: "not allocated|gone",
		By: histories.Theirs, Seldom: true,
		Why: "after a restart of the kubelet a claim is made and removed for a pod that has ended"},
}
