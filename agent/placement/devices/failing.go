package devices

import (
	"cmp"
	"slices"

	"github.com/numalet/numalet/agent/placement/allocation"
	"github.com/numalet/numalet/deviceplugin/failure"
)

// Failure says since when a device is unhealthy, and what was or will be done about it, for a container
// that holds it.
type Failure struct {
	// Container is namespace/pod/container.
	Container string `json:"container"`
	failure.Outlook
}

// addFailures adds to rows what is known of failures.
func addFailures(rows []Row, state allocation.State, known map[failure.Device]failure.Outlook) {
	by := map[device][]Failure{}
	for d, o := range known {
		if pod, holds := state.Pods[d.Pod]; holds && d.Driver == "" {
			key := device{d.Resource, d.ID}
			by[key] = append(by[key], Failure{pod.Namespace + "/" + pod.Name + "/" + d.Container, o})
		}
	}
	for i := range rows {
		if all := by[device{rows[i].Resource, rows[i].ID}]; len(all) > 0 {
			slices.SortFunc(all, func(a, b Failure) int { return cmp.Compare(a.Container, b.Container) })
			rows[i].Failures = all
		}
	}
}
