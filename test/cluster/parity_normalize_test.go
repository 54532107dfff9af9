package cluster_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// comparableStatus returns a status with conditions and containers by name, as JSON, without its
// intended differences.
func comparableStatus(pod *v1.Pod) map[string]any {
	status := pod.Status.DeepCopy()
	conditions, containers := map[string]any{}, map[string]any{}
	for _, c := range status.Conditions {
		conditions[string(c.Type)] = c
	}
	for i := range status.ContainerStatuses {
		backedOff(pod, &status.ContainerStatuses[i])
	}
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if on := c.State.Waiting; on != nil && isOnItsWay(on.Reason) {
			on.Message = "" // numalet says what for
		}
		containers[c.Name] = c
	}
	status.Conditions, status.InitContainerStatuses, status.ContainerStatuses = nil, nil, nil
	if status.Phase == v1.PodPending {
		status.Reason, status.Message = "", "" // numalet says what it waits for
	}
	// The kubelet may sync again, and copies the values of cgroups: with cgroups v1 no limit is a
	// number.
	status.Resources = nil
	if pod.Spec.Overhead != nil {
		status.AllocatedResources = nil // the kubelet adds the overhead, as readers of the field do
	}
	return map[string]any{"conditions": conditions, "containers": containers, "pod": status}
}

// backedOff shows a container that will start again as waiting. Before its next sync the kubelet
// shows only how it ended. The number of restarts depends on the time.
func backedOff(pod *v1.Pod, c *v1.ContainerStatus) {
	const reason = "CrashLoopBackOff"
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason}}
	end, policy := c.State.Terminated, pod.Spec.RestartPolicy
	switch {
	case isOver(pod):
	case c.State.Waiting != nil && c.State.Waiting.Reason == reason:
		c.State, c.RestartCount = waiting, min(c.RestartCount, 1)
	case end != nil && (policy == v1.RestartPolicyAlways ||
		policy == v1.RestartPolicyOnFailure && end.ExitCode != 0):
		c.State, c.LastTerminationState.Terminated = waiting, end
		c.RestartCount = min(c.RestartCount, 1)
	}
}

// rule replaces what differs between runs in a text.
type rule struct {
	is   *regexp.Regexp
	with string
}

// ofOnePod replaces what differs between any two pods.
var ofOnePod = []rule{
	// A process that could not start: the kubelet reports the beginning of the epoch.
	{regexp.MustCompile(`"1970-01-01T00:00:00Z"`), "null"},
	{regexp.MustCompile(`[0-9a-f]{64}`), "ID"}, // of containers, sandboxes
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+`), "..TIME"}, // of volumes' files
	{regexp.MustCompile(`snapshots/\d+/`), "snapshots/N/"},                    // of containerd
	{regexp.MustCompile(`ovl-idmapped\d+`), "ovl-idmappedN"},
	{regexp.MustCompile(`"0 \d{5,} 65536"`), `"0 FIRST 65536"`}, // of user namespaces
	{regexp.MustCompile(`([ug]id)=\d{6,}`), "$1=ONE"},           // of user namespaces
	{regexp.MustCompile(`(pipe|socket):\[\d+\]`), "$1"},
	{regexp.MustCompile(`/dev/pts/\d+`), "/dev/pts/N"},
	{regexp.MustCompile(`ey[-\w]+\.[-\w]+\.[-\w]+`), "TOKEN"},
	{lastWords, "$1/WORDS"},
	{regexp.MustCompile(`kube-api-access-\w{5}`), "kube-api-access-X"},
	{inUse, "$1: N"},
	// numalet says what is wrong with the file, and where the path is.
	{regexp.MustCompile(`container [^:]*: environment variable [^:]*: (couldn't parse env file)[^"]*`),
		"$1"},
	{regexp.MustCompile(`container [^:]*: subPathExpr [^:]*: the container has no environment ` +
		`variable \\"(\w+)\\"`), "missing value for $1"},
}

// resolverOptions matches the options of /etc/resolv.conf in JSON, which the kubelet writes in any
// order.
var resolverOptions = regexp.MustCompile(`\\noptions [^\\]*`)

// normalized returns the JSON without what differs between the two nodes, or between runs.
func (s *inside) normalized(t *testing.T, tree any, pod *v1.Pod) any {
	t.Helper()
	names := strings.NewReplacer(s.Root, "ROOT", s.Dir, "DIR", s.runtime, "RUNTIME", s.cgroup,
		"/NODE", string(pod.UID), "UID", s.Namespace, "NAMESPACE", `"`+s.Name+`"`, `"NODE"`)
	rules := ofOnePod
	if ip := pod.Status.PodIP; ip != "" {
		rules = append([]rule{{regexp.MustCompile(regexp.QuoteMeta(ip) + `\b`), "IP"}},
			rules...)
	}
	rules = append(rules, namespaces(t)...)
	return rewritten(t, tree, func(text string) string {
		text = names.Replace(text)
		for _, r := range rules {
			text = r.is.ReplaceAllString(text, r.with)
		}
		return resolverOptions.ReplaceAllStringFunc(text, func(line string) string {
			return strings.Join(slices.Sorted(slices.Values(strings.Fields(line))), " ")
		})
	})
}

// namespaces returns rules that tell the host's namespaces, which are this process's, from others.
func namespaces(t *testing.T) (out []rule) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/ns")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		is, err := os.Readlink(filepath.Join("/proc/self/ns", e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rule{regexp.MustCompile(regexp.QuoteMeta(is)), "the host's"})
	}
	return append(out, rule{regexp.MustCompile(`\b[a-z]+:\[\d+\]`), "another"})
}
