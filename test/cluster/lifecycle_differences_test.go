package cluster_test

import (
	"regexp"
	"slices"
	"strings"

	"github.com/numalet/numalet/test/cluster/histories"
)

// meantHistories are the intended differences; docs/pod-fields.md lists them for users. The other
// agent may have missed a short value by chance.
var meantHistories = slices.Concat(meantStarts, meantRestarts, meantEnds, meantPlugins,
	meantOverRestarts)

const (
	creating = "#0 waiting ContainerCreating"
	exited   = `#\d+ terminated .*`
	backsOff = `#\d+ waiting CrashLoopBackOff .*`

	stopsMain   = "Normal Killing: Stopping container main"
	failsProbe  = "Normal Killing: Container main failed liveness probe"
	noVariables = ".*couldn't parse env file"
	noRoom      = `Warning (OutOf.* capacity: \d+|UnexpectedAdmissionError: .* preemption: .*\])`
	podFailed   = `#\d+ False PodFailed`
	notReady    = `#\d+ False ContainersNotReady: .*`
)

var meantStarts = []histories.Meant{
	{Pod: "volume-comes|deleted-mounting|chance-.*", Field: "reason|message", By: histories.Ours,
		Value: "FailedMount|MountVolume.SetUp failed .*", Why: "why a Pending pod waits is told"},
	{Pod: "sandbox-fails-once", Field: "reason|message", By: histories.Ours,
		Value: "CreatePodSandboxError|.* no network", Why: "why a Pending pod waits is told"},
	{Field: "events", Value: "Warning FailedMount: .* (not registered|no relationship found .*)",
		Seldom: true, Why: "the node may not have an object yet, which is tried again"},
	{Pod: "create-fails-once", Field: "container main state", By: histories.Ours, Seldom: true,
		Value: "#0 waiting CreateContainerError .*",
		Why:   "the kubelet tries again with its next look, before it tells"},
	{Pod: "chance-.*", Field: "starts", Value: `StartContainer #\d+ (debug.*|main)`, Seldom: true,
		Why: "ephemeral containers are started after all others, docs/life-of-a-pod.md"},
	{Pod: "chance-.*", Field: "events", Value: "Warning LifecycleHTTPFallback: .*", By: histories.Ours,
		Seldom: true, Why: "the kubelet means to tell of this, and its recorder drops it"},
	{Pod: "chance-.*", Field: "events", Value: noRoom + "; .*", By: histories.Ours,
		Beside: noRoom, Seldom: true, Why: "the event of a rejection says why there is no room"},
	{Pod: "chance-.*", Field: "events", Value: noRoom, By: histories.Theirs,
		Beside: noRoom + "; .*", Seldom: true, Why: "the same"},
	{Pod: "chance-.*", Field: "container .* state|events .*", Value: noVariables + ": .*",
		By: histories.Ours, Beside: noVariables, Seldom: true,
		Why: "the kubelet does not say what is wrong with the file"},
	{Pod: "chance-.*", Field: "container .* state|events .*", Value: noVariables,
		By: histories.Theirs, Beside: noVariables + ": .*", Seldom: true, Why: "the same"},
	{Pod: "chance-.*", Field: "calls .*|events .*", By: histories.Theirs, Seldom: true,
		Value: ".* container is in CONTAINER_EXITED state",
		Why:   "the kubelet may probe a container that has ended"},
	{Pod: "chance-.*", Field: "seen", Value: "2", By: histories.Ours, Seldom: true,
		Why: "the kubelet looks no more at the spec of a pod that it has rejected"},
	{Pod: "chance-.*", Field: "seen", Value: "1", By: histories.Theirs, Seldom: true, Why: "the same"},
}

var meantRestarts = []histories.Meant{
	{Field: "container .* state", Value: exited, By: histories.Theirs, Beside: backsOff, Seldom: true,
		Why: "a container that is to start again is CrashLoopBackOff at once"},
	{Field: "container .* state", Value: backsOff, By: histories.Ours, Beside: exited, Seldom: true,
		Why: "the same"},
	{Field: "events .*", Value: "Warning BackOff: Back-off restarting .*", By: histories.Ours,
		Seldom: true, Why: "the kubelet tells of a back-off if it looks meanwhile"},
	{Pod: "init-oom-once", Field: "condition Initialized", Value: "#1 False .*", By: histories.Ours,
		Seldom: true,
		Why:    "the kubelet takes an init container with exit code 0 for ready until it runs again"},
	{Pod: "hook-fails|chance-.*", Field: "container main state", By: histories.Theirs, Seldom: true,
		Value: `#\d+ waiting PostStartHookError .*`,
		Why:   "a container whose hook has failed is CrashLoopBackOff at once"},
	{Pod: "sidecar-again|rule-restarts(-all)?|exits-always|chance-.*",
		Field: "container .* (state|ready|started)|condition (Containers)?Ready",
		Value: "#0 (terminated .*|False ContainersNotReady: .*|false)", By: histories.Ours, Seldom: true,
		Why: "an exit is told at once; the kubelet mostly starts the container in the same look"},
	{Pod: "live-fails|starts-second|image-changed", Field: "container main state", Value: creating,
		By: histories.Ours, Seldom: true,
		Why: "a container that is stopped to start again waits meanwhile"},
	{Pod: "chance-.*", Field: "container main state", Value: creating + "|#0 waiting PodInitializing",
		By: histories.Ours, Seldom: true, Why: "the same"},
	{Pod: "live-fails-never", Field: "events spec.containers{main}", Value: "Normal Killing: .*",
		Why: "the kubelet does not say why it stops the last container of a pod"},
	{Pod: "chance-.*", Field: "events spec.containers{main}", Value: failsProbe, By: histories.Ours,
		Beside: stopsMain, Seldom: true, Why: "the same"},
	{Pod: "chance-.*", Field: "events spec.containers{main}", Value: stopsMain, By: histories.Theirs,
		Beside: failsProbe, Seldom: true, Why: "the same"},
	{Pod: "chance-.*", Field: "condition (Containers)?Ready", Value: notReady, By: histories.Theirs,
		Beside: podFailed, Seldom: true,
		Why: "the kubelet leaves the conditions of a pod that fails before all has started as they were"},
	{Pod: "chance-.*", Field: "condition (Containers)?Ready", Value: podFailed, By: histories.Ours,
		Beside: notReady, Seldom: true, Why: "the same"},
	{Pod: "sandbox-dies|restart-sandbox", Field: "condition PodReadyToStartContainers",
		Value: "#0 (False PodSandboxNotReady: pod sandbox is not ready|True)",
		By:    histories.Ours, Seldom: true,
		Why: "that the sandbox has died is told at once"},
	{Pod: "rule-restarts-all", Field: "container (init|main) id", Value: "#1 (none|1|2)", Seldom: true,
		Why: "the kubelet counts a container that is to begin anew before it has another id"},
	{Pod: "chance-.*", Field: "container main id", Value: "#1 2", By: histories.Theirs, Seldom: true,
		Why: "the same"},
	{Pod: "rule-restarts-all", Field: "condition AllContainersRestarting", Value: "#1 True .*",
		By: histories.Ours, Seldom: true, Why: "the kubelet has mostly begun anew before it tells"},
	{Pod: "rule-restarts-all", Field: "phase", Value: "Pending|Running", By: histories.Theirs,
		Seldom: true,
		Why:    "a pod that begins anew goes on running; the kubelet has it pending for a moment"},
}

var meantEnds = []histories.Meant{
	{Pod: "deleted-pulling", Field: "calls", Value: "PullImage .*",
		Why: "a pull ends with its pod; the kubelet waits for it, makes the container and stops it"},
	{Pod: "deleted-pulling", Field: "calls main|starts", By: histories.Theirs,
		Value: "(Create|Start|Stop)Container #0( main)?", Why: "the same"},
	{Pod: "deleted-pulling", Field: "events spec.containers{main}", By: histories.Theirs,
		Value: "Normal (Pulled|Created|Started|Killing): .*", Why: "the same"},
	{Pod: "deleted-pulling", Field: "container main (state|id)",
		Value: "#0 (terminated (ContainerStatusUnknown 137|Error 143).*|1|none)", Why: "the same"},
	{Pod: "deleted-twice", Field: "calls main", Value: "StopContainer #0: .* context canceled",
		By: histories.Ours, Why: "a shorter grace counts at once"},
	{Field: "(object 2: )?condition (Containers)?Ready", Value: `#\d+ False Terminating: .*`,
		By: histories.Ours, Seldom: true,
		Why: "a pod that the node ends is not ready at once, docs/life-of-a-pod.md"},
	{Pod: "(restart-)?static(-replaced)?",
		Field: "(object 2: )?" +
			"(condition ((Containers)?Ready|PodReadyToStartContainers)|container main .*)",
		Value:  "#0 (False (PodFailed|(ContainersNotReady|PodSandboxNotReady): .*)|false|terminated .*)",
		Seldom: true,
		Why:    "the mirror pod is gone with the pod; of the kubelet's one sees either end"},
	{Pod: "(restart-)?static(-replaced)?", Field: "(object 2: )?phase", Value: "Failed", Seldom: true,
		Why: "the same"},
	{Pod: "static-again",
		Why: "a pod that begins again gets a new mirror pod; the kubelet's goes on, without telling the end"},
	{Pod: "static-replaced", Field: "object 2: start", Value: "1|2",
		Why: "another manifest is another pod, with a start of its own"},
}

var meantPlugins = []histories.Meant{
	{Pod: "plugin-two", Field: "calls plugin", Value: "GetPreferredAllocation", By: histories.Theirs,
		Why: "a plugin is not asked for a preference where there is no choice, docs/device-plugins.md"},
	{Pod: "plugin-preferred-fails",
		Why: "a preference is advice, docs/device-plugins.md; the kubelet refuses the pod"},
	{Pod: "plugin-start-fails-once", Field: "container main state",
		Value: "#0 waiting CreateContainerConfigError device plugin PreStartContainer .*",
		By:    histories.Ours, Seldom: true,
		Why: "the kubelet tries again with its next look, before it tells"},
}

// Their duration depends on when the kubelet learns that it must end the pod.
var meantOverRestarts = []histories.Meant{
	{Pod: "restart-.*", Field: "container .* (ready|started)|condition (Containers)?Ready",
		Value: "#0 (true|false|True|False .*)", By: histories.Theirs, Seldom: true,
		Why: "what was ready stays so; the kubelet has it unready until probes have answered"},
	{Pod: "restart-static", Field: "start", By: histories.Theirs,
		Why: "a restarted kubelet gives a static pod another start"},
	{Pod: "restart-succeeded", Field: "ips?", Value: "none|0", By: histories.Theirs, Seldom: true,
		Why: "a pod that has ended keeps its status; the kubelet loses its address"},
	{Pod: "restart-sandbox", Field: "ips", Value: "0|1", By: histories.Theirs, Seldom: true,
		Why: "a pod keeps its address until it has another; the kubelet loses that of a dead sandbox"},
	{Pod: "restart-rejected", Field: "condition .*|container .*|host", Seldom: true,
		Why: "a pod that was rejected keeps its status; the kubelet writes another one"},
}

// ofARun matches what differs between any two pods or observations.
var ofARun = []rule{
	{regexp.MustCompile(`-try\d+\b`), ""},
	{regexp.MustCompile(`[0-9a-f]{64}`), "ID"},
	{regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\b(\d+m)?\d+(\.\d+)?m?s\b`), "DURATION"},
	{regexp.MustCompile(`pod=[-a-z0-9]+_`), "pod=POD_"},
	{inUse, "$1: N"},
	// numalet also says which variable of which container is wrong.
	{regexp.MustCompile(`container "\w+": environment variable "\w+": `), ""},
	// numalet also says what would fit, and which plugin it was.
	{regexp.MustCompile(`(capacity: \d+); (CPUs|memory): .*`), "$1"},
	{regexp.MustCompile(`(which is unexpected); .*`), "$1"},
}

// plain removes from a text what differs between the two agents' nodes, or between runs.
func (s *side) plain(text string) string {
	text = strings.NewReplacer(s.Root, "ROOT", s.Dir, "DIR", s.Namespace, "NAMESPACE",
		"-"+s.Name, "-NODE", s.answers.address, "ANSWERS").Replace(text)
	for _, r := range ofARun {
		text = r.is.ReplaceAllString(text, r.with)
	}
	return text
}
