package serving

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/numalet/numalet/internal/route"
)

// index lists what a listener answers, at its root. The kubelet has no such page.
func index(routes []route.Route) route.Route {
	text := indexText(routes)
	return route.Get("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, text) // an error means that the client has gone
	})
}

// about says of each path, without its variable parts, what it answers and which command asks it.
var about = map[string]string{
	"/allocatedPods":    "pods with the resources that they were admitted with",
	"/attach":           "a stream to a container's process",
	"/checkpoint":       "checkpoints a container",
	"/claims":           "resource claims and what their drivers did: numalet claim list",
	"/claims/forget":    "has a claim not unprepared: numalet claim forget",
	"/containerLogs":    "the log of a container: numalet logs",
	"/csidrivers":       "drivers of volumes: numalet plugin list",
	"/debug/admission":  "the decision on a pod: numalet explain POD",
	"/debug/fit":        "whether pods would fit: numalet fit",
	"/debug/shortage":   "what the node is short of: numalet explain",
	"/devices":          "devices of plugins and of resource claims: numalet device list",
	"/devices/cordon":   "has a device not given out: numalet device cordon",
	"/devices/uncordon": "has a device given out again: numalet device uncordon",
	"/drivers":          "drivers of resource claims: numalet plugin list",
	"/events":           "the last events of pods and of the node: numalet events",
	"/exec":             "a stream to a command in a container",
	"/free":             "what is free of CPUs, memory and devices, by NUMA node: numalet status",
	"/healthz":          "whether the agent is healthy; /healthz?verbose has each check: numalet status",
	"/machine":          "the hardware: numalet topology show --server",
	"/metrics":          "metrics of the agent",
	"/metrics/cadvisor": "metrics of containers",
	"/metrics/probes":   "metrics of probes",
	"/metrics/resource": "metrics of what pods use",
	"/metrics/slis":     "metrics of the health checks",
	"/placements":       "where every container is: numalet pods",
	"/plugins":          "device plugins and the calls to them: numalet plugin list",
	"/podresources":     "CPUs, memory and devices that containers hold: numalet podresources",
	"/podresources/allocatable": "CPUs, memory and devices that containers can get: " +
		"numalet podresources --allocatable",
	"/pods":          "pods with their statuses: numalet pods",
	"/portForward":   "a stream to a port of a pod",
	"/problems":      "manifests, plugins, drivers and volumes with a problem: numalet problems",
	"/run":           "runs a command in a container and answers with its output: ?cmd=COMMAND&cmd=ARGUMENT",
	"/stats":         "the node's statistics",
	"/stats/summary": "what the node and its pods use",
	"/version":       "which build the agent is: numalet status",
}

// indexText has a line for each method and path, by path.
func indexText(routes []route.Route) string {
	methods := map[string][]string{"/healthz": {http.MethodGet}}
	for _, r := range routes {
		path := strings.TrimSuffix(r.Pattern, "{$}")
		methods[path] = append(methods[path], cmp.Or(r.Method, http.MethodGet))
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, path := range slices.Sorted(maps.Keys(methods)) {
		all := slices.Compact(slices.Sorted(slices.Values(methods[path])))
		fmt.Fprintf(table, "%s\t%s\t%s\n", strings.Join(all, ","), path, about[fixed(path)])
	}
	_ = table.Flush() // to memory
	return b.String()
}

// fixed returns the path before its first variable part, without a slash at the end.
func fixed(path string) string {
	before, _, _ := strings.Cut(path, "{")
	return strings.TrimSuffix(before, "/")
}
