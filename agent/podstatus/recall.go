package podstatus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/topology/podspec"
)

// RecallAgain asks again what an earlier run of the agent reported of the static pods of which that
// was unknown, and returns the pods of which it is known now: their workers should look at them.
func (s *Store) RecallAgain() (news []types.UID) {
	for _, e := range s.table.all() {
		if e.recalled || !podspec.IsStatic(e.Pod) {
			continue
		}
		reported := s.cfg.Recall(e.Pod)
		if reported.Phase == "" {
			continue
		}
		s.table.update(e.Pod.UID, func(e entry) entry { return e.recall(reported) })
		news = append(news, e.Pod.UID)
	}
	return news
}

// recall returns the entry with what was reported before, as far as nothing was found out since.
func (e entry) recall(reported v1.PodStatus) entry {
	e.recalled = true
	if e.first {
		e.status = reported
	} else {
		e.status = status.Recalled(e.Pod, e.status, reported)
	}
	return e
}
