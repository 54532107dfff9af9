package cluster_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// difference is a meant difference of stories, or what has no order in them.
type difference struct {
	// agent is whose lines these are; empty: both agents may have them, or not.
	agent string
	// story is the only one with such lines; empty: there is no such.
	story string
	// line is what they are like, as "PART: LINE".
	line *regexp.Regexp
	// again: of lines that are the same only the first is compared.
	again bool
	why   string
}

// uncompared are all differences. Those of one agent must occur.
func uncompared() []difference {
	like := regexp.MustCompile
	return []difference{
		{line: like(`: call (Controller\w+|Probe|GetPlugin\w+) `), why: "the sidecars call these"},
		{line: like(`: call NodeGetCapabilities `), why: "numalet asks once before an operation, the " +
			"kubelet up to three times"},
		{line: like(`: event kubelet NODE Pod/\S+ Normal (Pulling|Pulled|Created|Started): `),
			why: "they are not about volumes, and may come before or after the story looks"},
		{story: "crash", line: like(`: call (NodeGetInfo|NotifyRegistrationStatus)\b`),
			why: "the driver may register again before the next call or after it"},
		{line: like(`: event kubelet NODE \S+ Warning \w+: .* is forbidden: User "system:node:NODE" cannot get`),
			why: "the node authorizer learns of a new object a moment after it is there"},
		{story: "crash", line: like(`not found in the list of registered CSI drivers$`),
			why: "the next call may be tried while the driver is away"},
		{agent: "kubelet", story: "tokens", again: true, line: like(`: call NodePublishVolume `),
			why: "the kubelet publishes again with each sync of the pod, numalet each minute"},
		{agent: "kubelet", story: "nostage", line: like(
			`: file ROOT/plugins/kubernetes.io/csi/DRIVER(/HASH(/globalmount)?)? drwxr-x---$`),
			why: "the kubelet makes directories for a driver that cannot stage, and leaves them"},
		{agent: "numalet", line: like(
			`: file ROOT/pods/UID/plugins/kubernetes.io~csi(/(PV|data)(/ready)?)? [d-]rw[x-]r-[x-]---$`),
			why: "numalet marks a volume as complete, and asks nothing of its driver after a restart"},
		{agent: "numalet", line: like(`: event kubelet NODE Pod/\S+ Warning FailedUnMount: `),
			why: "numalet says what keeps a pod that is to go"},
		{agent: "numalet", story: "exclusive", line: like(`: event kubelet NODE Pod/exclusive Normal WaitingForObjects: `),
			why: "the pod is admitted when its volume is attached"},
	}
}

// compareStories compares what the two agents did in all cases.
func compareStories(t *testing.T, kubelet, numalet map[string]string) {
	used := map[int]bool{}
	for name, theirs := range kubelet {
		diff := cmp.Diff(comparedOf("kubelet", name, theirs, used), comparedOf("numalet", name, numalet[name], used))
		if diff != "" {
			t.Errorf("%s: the kubelet (-) and numalet (+) differ:\n%s", name, diff)
		}
	}
	if len(kubelet) < len(csiCases()) {
		return
	}
	for i, d := range uncompared() {
		if d.agent != "" && !used[i] {
			t.Errorf("the difference %q (%s) does not occur; take it off the list and out of docs/pods.md", d.line, d.why)
		}
	}
}

// comparedOf returns the lines of a story in which agents are to agree. Within a part of the story calls
// keep their order, and all else has none.
func comparedOf(agent, story, text string, used map[int]bool) (out []string) {
	var calls, others []string
	end := func() {
		slices.Sort(others)
		out = append(append(out, calls...), others...)
		calls, others = nil, nil
	}
	part, seen := "", map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, begins := strings.CutPrefix(line, "== "); begins {
			end()
			part = name
			out = append(out, line)
			continue
		}
		again := seen[line]
		seen[line] = true
		i := slices.IndexFunc(uncompared(), func(d difference) bool {
			return (d.agent == "" || d.agent == agent) && (d.story == "" || d.story == story) &&
				(!d.again || again) && d.line.MatchString(part+": "+line)
		})
		switch {
		case i >= 0:
			used[i] = true
		case strings.HasPrefix(line, "call "):
			calls = append(calls, line)
		default:
			others = append(others, line)
		}
	}
	end()
	return out
}
