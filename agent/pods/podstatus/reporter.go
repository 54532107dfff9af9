package podstatus

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/pods/podworker"
	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/agent/storage/volume"
	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/cri/logfiles"
	"github.com/numalet/numalet/topology/podspec"
)

// Terminations reads what containers left as their last words; volume.Records does.
type Terminations interface {
	TerminationMessage(pod *v1.Pod, c *v1.Container, exit volume.Exit) (string, error)
}

// Reporter makes statuses of what workers saw.
type Reporter struct {
	Statuses     *Store
	Terminations Terminations
	LogsDir      string // of pods' logs; "": they have none
}

// Report takes one round of a pod's worker, in the worker's goroutine, and returns the status that
// it made of it; false: nothing was seen that one could be made of.
func (r Reporter) Report(round podworker.Report) (v1.PodStatus, bool) {
	if round.Err != nil || round.Stop != nil && round.Stop.Orphan {
		return v1.PodStatus{}, false // the worker looks again; an orphan has no status
	}
	messages := r.messages(round.Pod, round.Observed)
	return r.Statuses.saw(round, func(in status.Input) v1.PodStatus {
		in.Pod, in.Messages = round.Pod, messages
		in.Facts = status.Facts{
			Observed: round.Observed, Waiting: round.Decision.Waiting, Probed: round.Probed,
		}
		in.Stop.Terminating = round.Decision.State != podworker.SyncPod
		in.Stop.Holds = round.Decision.Holds
		in.Stop.Unready = podworker.Desired{Pod: round.Pod, Stop: round.Stop}.Unready()
		in.Stop.Finished = round.Decision.State == podworker.Finished
		if round.Stop != nil {
			in.Stop.Why = status.Reason{Reason: round.Stop.Reason, Message: round.Stop.Message}
			in.Stop.OwnLimit = round.Stop.OwnLimit
		}
		s := status.Generate(in)
		// The reason of a pod that has ended is for good; what keeps the node from clearing up is
		// not, unless nothing but that keeps the pod.
		problem := round.Decision.Problem
		if s.Reason == "" && problem.Reason != "" &&
			(!podspec.Ended(s.Phase) || round.Stop != nil && round.Stop.Remove) {
			s.Reason, s.Message = problem.Reason, problem.Message
		}
		return s
	})
}

// NextAttempt returns the attempt number after all that the pod's status and logs tell of.
func (r Reporter) NextAttempt(pod *v1.Pod, container string) uint32 {
	next := status.Attempt(r.Statuses.Status(pod.UID), container)
	if r.LogsDir == "" {
		return next
	}
	return max(next, logfiles.Place{Dir: r.LogsDir}.Next(pod, container))
}

// messages are the termination messages of the containers that have exited, by id.
func (r Reporter) messages(pod *v1.Pod, observed cri.Pod) map[string]string {
	out, specs := map[string]string{}, map[string]*v1.Container{}
	for c := range podspec.All(pod) {
		specs[c.Name] = c
	}
	for _, c := range observed.Containers {
		if c.State != cri.ContainerExited {
			continue
		}
		if c.Exit.Message != "" {
			out[c.ID] = c.Exit.Message
			continue
		}
		spec := specs[c.Name]
		if spec == nil {
			continue
		}
		text, err := r.Terminations.TerminationMessage(pod, spec, volume.Exit{
			Attempt: c.Attempt, Code: c.Exit.Code,
			LogPath: filepath.Join(cri.PodLogDir(r.LogsDir, pod),
				cri.ContainerLogPath(c.Name, c.Attempt)),
		})
		if err != nil {
			klog.Background().V(2).Info("A termination message was not read", "pod", klog.KObj(pod),
				"container", c.Name, "err", err)
		}
		out[c.ID] = text
	}
	return out
}
