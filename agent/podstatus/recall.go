package podstatus

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/status"
	"github.com/numalet/numalet/topology/podspec"
)

// RecallAgain asks anew what an earlier run of the agent told of static pods of which that was not
// known, and returns those of which something is known now: their workers are to look at them.
func (s *Store) RecallAgain() (news []types.UID) {
	for _, e := range s.all() {
		if e.recalled || !podspec.IsStatic(e.pod) {
			continue
		}
		told := s.cfg.Recall(e.pod)
		if told.Phase == "" {
			continue
		}
		s.update(e.pod.UID, func(e entry) entry { return e.recall(told) })
		news = append(news, e.pod.UID)
	}
	return news
}

// recall has the entry say what was told before, as far as nothing else was found out since.
func (e entry) recall(told v1.PodStatus) entry {
	e.recalled = true
	if e.first {
		e.status, e.told = told, status.Ended(told.Phase)
	} else {
		e.status = status.Recalled(e.pod, e.status, told)
	}
	return e
}
