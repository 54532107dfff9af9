package podstatus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/pods/status"
	"github.com/numalet/numalet/topology/podspec"
)

// RecallAgain asks again for the statuses that an earlier run reported of static pods, where they
// were unknown. It returns the pods whose status is known now: their workers should look at them.
func (s *Store) RecallAgain() (news []types.UID) {
	for _, e := range s.table.all() {
		if s.recallAgain(*e) {
			news = append(news, e.Pod.UID)
		}
	}
	return news
}

// recallAgain is RecallAgain for one pod.
func (s *Store) recallAgain(e entry) (news bool) {
	if e.recalled || !podspec.IsStatic(e.Pod) {
		return false
	}
	reported := s.proven(e.Pod, s.cfg.Recall(e.Pod))
	if reported.Phase == "" {
		return false
	}
	s.table.update(e.Pod.UID, func(e entry) entry { return e.recall(reported) })
	return true
}

// proven returns what counts of a status that was reported before the agent's start.
func (s *Store) proven(pod *v1.Pod, reported v1.PodStatus) v1.PodStatus {
	if s.cfg.ProbeAnew {
		return status.Unproven(pod, reported)
	}
	return reported
}

// recall fills in what an earlier run reported where this run has found out nothing yet.
func (e entry) recall(reported v1.PodStatus) entry {
	e.recalled = true
	if e.first {
		e.status = reported
	} else {
		e.status = status.Recalled(e.Pod, e.status, reported)
	}
	return e
}
