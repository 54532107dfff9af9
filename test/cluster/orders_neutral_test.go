package cluster_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// byName is a status with conditions and containers by name, as JSON.
func byName(status *v1.PodStatus) map[string]any {
	conditions, containers := map[string]any{}, map[string]any{}
	for _, c := range status.Conditions {
		conditions[string(c.Type)] = c
	}
	for _, c := range status.InitContainerStatuses {
		containers["init "+c.Name] = c
	}
	for _, c := range status.ContainerStatuses {
		containers[c.Name] = c
	}
	rest := status.DeepCopy()
	rest.Conditions, rest.InitContainerStatuses, rest.ContainerStatuses = nil, nil, nil
	return map[string]any{"conditions": conditions, "containers": containers, "rest": rest}
}

// rule is what is of one run in a text, and what stands for it.
type rule struct {
	is   *regexp.Regexp
	with string
}

// ofOnePod are what no two pods have alike.
var ofOnePod = []rule{
	{regexp.MustCompile(`[0-9a-f]{64}`), "ID"}, // of containers, sandboxes
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`\.\.\d{4}_\d\d_\d\d_\d\d_\d\d_\d\d\.\d+`), "..TIME"}, // of volumes' files
	{regexp.MustCompile(`snapshots/\d+/`), "snapshots/N/"},                    // of containerd
	{regexp.MustCompile(`(pipe|socket):\[\d+\]`), "$1"},
	{regexp.MustCompile(`/dev/pts/\d+`), "/dev/pts/N"},
	{regexp.MustCompile(`ey[-\w]+\.[-\w]+\.[-\w]+`), "TOKEN"},
	{regexp.MustCompile(`(/containers/[-a-z0-9]+)/[0-9a-f]{8}`), "$1/WORDS"},
	{regexp.MustCompile(`used: [0-9]+`), "used: N"}, // by pods that came first
}

// neutral is the JSON without what only tells the sides, or two runs, apart.
func (s *inside) neutral(t *testing.T, tree any, pod *v1.Pod) any {
	t.Helper()
	names := strings.NewReplacer(s.Root, "ROOT", s.Dir, "DIR", s.runtime, "RUNTIME", s.cgroup,
		"/NODE", string(pod.UID), "UID", s.Namespace, "NAMESPACE", `"`+s.Name+`"`, `"NODE"`)
	rules := ofOnePod
	if ip := pod.Status.PodIP; ip != "" {
		rules = append([]rule{{regexp.MustCompile(`\b` + regexp.QuoteMeta(ip) + `\b`), "IP"}},
			rules...)
	}
	rules = append(rules, namespaces(t)...)
	return rewritten(t, tree, func(text string) string {
		text = names.Replace(text)
		for _, r := range rules {
			text = r.is.ReplaceAllString(text, r.with)
		}
		return text
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
