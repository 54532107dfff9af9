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

// comparableStatus is a status with conditions and containers by name, as JSON. What it leaves out differs,
// and is meant to.
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
			on.Message = "" // we say what for
		}
		containers[c.Name] = c
	}
	status.Conditions, status.InitContainerStatuses, status.ContainerStatuses = nil, nil, nil
	if status.Phase == v1.PodPending {
		status.Reason, status.Message = "", "" // we say what it waits for
	}
	// The kubelet may look again, and says what cgroups say: with cgroups v1 no limit is a number.
	status.Resources = nil
	if pod.Spec.Overhead != nil {
		status.AllocatedResources = nil // the kubelet adds the overhead, and so do its readers
	}
	return map[string]any{"conditions": conditions, "containers": containers, "pod": status}
}

// backedOff has a container that is to start again wait for that. Until the kubelet looks again it
// only tells how the container has ended. How often it was started depends on when one looks.
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

// rule is what is of one run in a text, and what stands for it.
type rule struct {
	is   *regexp.Regexp
	with string
}

// ofOnePod are what no two pods have alike.
var ofOnePod = []rule{
	// A process that could not start: the kubelet says when the epoch began.
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
	// We say what is wrong with the file, and where the path is.
	{regexp.MustCompile(`container [^:]*: environment variable [^:]*: (couldn't parse env file)[^"]*`),
		"$1"},
	{regexp.MustCompile(`container [^:]*: subPathExpr [^:]*: the container has no environment ` +
		`variable \\"(\w+)\\"`), "missing value for $1"},
}

// resolverOptions are those of /etc/resolv.conf as JSON, which have no order under the kubelet.
var resolverOptions = regexp.MustCompile(`\\noptions [^\\]*`)

// neutral is the JSON without what only tells the sides, or two runs, apart.
func (s *inside) neutral(t *testing.T, tree any, pod *v1.Pod) any {
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

// namespaces tell those of the host, which this process is in, from others.
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
