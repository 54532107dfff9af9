package cluster_test

import (
	"regexp"
	"strings"

	"github.com/numalet/numalet/test/cluster/histories"
)

// meantHistories are differences that are meant; docs/pod-fields.md tells users of them.
var meantHistories = []histories.Meant{
	{Field: "reason|message", By: histories.Ours,
		Why: "what a Pending pod waits for is told"},
	{Field: "events", Value: "Warning FailedMount: .* (not registered|no relationship found .*)",
		Why: "of an object that the node may not have yet, which is tried again; which says so is by chance"},
	// Restarts.
	{Field: "container .* state", Value: "#\\d+ (terminated|waiting PostStartHookError) .*",
		By: histories.Theirs, Why: "here a container that is to start again is CrashLoopBackOff at once"},
	{Field: "container .* (state|started)|condition (Containers)?Ready", Pod: "sidecar-again|rule-restarts|chance-.*",
		Value: "#0 (terminated|False) .*", By: histories.Ours,
		Why: "an exit is told at once; the kubelet mostly starts the container in the same look"},
	{Pod: "create-fails-once", Field: "container main state", Value: "#0 waiting CreateContainerError .*",
		By: histories.Ours, Why: "the kubelet tries again with its next look, before it tells"},
	{Pod: "chance-.*", Field: "starts", Value: "StartContainer #0 (debug.*|main)",
		Why: "ephemeral containers are started after all others, docs/life-of-a-pod.md"},
	{Pod: "live-fails|starts-never|image-changed", Field: "container main state",
		Value: "#0 waiting ContainerCreating", By: histories.Ours,
		Why: "a container that is stopped to start again waits meanwhile"},
	{Pod: "live-fails-never", Field: "events .*", Value: "Normal Killing: .*",
		Why: "the kubelet does not say why it stops the last container of a pod"},
	// Ends.
	{Pod: "deleted-pulling", Field: "calls.*|starts|events .*|container main (state|id)",
		Why: "a pull ends with its pod; the kubelet waits for it, makes the container and stops it"},
	{Pod: "deleted-twice", Field: "calls main", Value: "StopContainer #0: .* context canceled",
		By: histories.Ours, Why: "a shorter grace counts at once"},
	{Pod: ".*static.*", Field: "(object 2: )?condition .*|(object 2: )?container .*",
		Value: "#0 (False .*|false|terminated .*|waiting .*)",
		Why:   "the mirror pod is gone with the pod; of the kubelet's one sees either end"},
	{Pod: "(.*-)?static.*", Field: "(object 2: )?start",
		Why: "another manifest is another pod, with a start of its own"},
	// Restarts of the agent.
	{Pod: "restart-.*", Field: "container .* (ready|started)|condition (Containers)?Ready",
		Value: "#0 (true|false|True|False .*)", By: histories.Theirs,
		Why: "what was ready stays so; the kubelet has it unready until probes have answered"},
	{Pod: "restart-sandbox", Field: "condition PodReadyToStartContainers", By: histories.Ours,
		Why: "that the sandbox has died is told at once"},
	{Pod: "restart-static", Field: "container .*|condition .*|start", By: histories.Theirs,
		Why: "as of other pods that were ready; a restarted kubelet gives a static pod another start"},
	{Pod: "restart-succeeded", Field: "ips?", Value: "none|0", By: histories.Theirs,
		Why: "a pod that has ended keeps its status; the kubelet loses its address"},
	{Pod: "restart-rejected", Field: "condition .*|container .*|host",
		Why: "a pod that was rejected keeps its status; the kubelet writes another one"},
}

// ofARun are what no two pods, or looks at them, have alike.
var ofARun = []rule{
	{regexp.MustCompile(`-try\d+\b`), ""},
	{regexp.MustCompile(`[0-9a-f]{64}`), "ID"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?m?s\b`), "DURATION"},
	{regexp.MustCompile(`pod=[-a-z0-9]+_`), "pod=POD_"},
	{inUse, "$1: N"},
	// What is wrong with a variable of which container is told too.
	{regexp.MustCompile(`container "\w+": environment variable "\w+": `), ""},
	{regexp.MustCompile(`(capacity: \d+); (CPUs|memory): .*`), "$1"}, // what would fit is told too
}

// plain is a text without what only tells the sides or runs apart.
func (s *side) plain(text string) string {
	text = strings.NewReplacer(s.Root, "ROOT", s.Dir, "DIR", s.Namespace, "NAMESPACE",
		"-"+s.Name, "-NODE", s.answers.address, "ANSWERS").Replace(text)
	for _, r := range ofARun {
		text = r.is.ReplaceAllString(text, r.with)
	}
	return text
}
