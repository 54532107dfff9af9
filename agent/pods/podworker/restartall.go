package podworker

import (
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/topology/podspec"
)

// restartAll carries out an exit that restarts all containers: it stops what runs and removes all
// records, so that the pod begins again in its sandbox. The records of such exits go last, so that
// an interrupted removal continues. Ephemeral containers stay. It reports whether there is
// something to do.
func (p *plan) restartAll() bool {
	sources := status.RestartAll(p.Pod, p.observed)
	if sources.Len() == 0 {
		return false
	}
	stop := Action{Kind: StopContainers, Grace: StopGrace(0), Message: "killing"}
	victims := Action{Kind: RemoveContainers, KeepLogs: true}
	last := Action{Kind: RemoveContainers, KeepLogs: true}
	for c := range podspec.Containers(p.Pod) {
		for _, record := range p.records[c.Name] {
			switch {
			case maybeRunning(record):
				stop.IDs = append(stop.IDs, record.ID)
			case sources.Has(c.Name):
				last.IDs = append(last.IDs, record.ID)
			default:
				victims.IDs = append(victims.IDs, record.ID)
			}
		}
	}
	for _, a := range []Action{stop, victims, last} {
		if len(a.IDs) > 0 {
			p.proposeForPod(a)
			return true
		}
	}
	return true
}
