package admission

import (
	"strings"

	"github.com/numalet/numalet/agent/allocation"
)

// ReasonAdopted is that of an Admit of a pod that runs already and lacks some of what it requests.
const ReasonAdopted = "AdoptedWithoutResources"

// adopt admits a pod that runs already, with what the store has of it: whatever has become of
// policies, the machine or the record, what runs is let run. err is why it gets no more; nil: it
// was not planned.
func (q *Queue) adopt(e *entry, err error) {
	q.letGo(e)
	e.tried = nil
	own, hardware := q.own(e), q.view.hardware
	q.move(e, admitted, grip{reserved: own.Pod})
	view := allocation.View{CPUs: hardware.CPUs, Memory: hardware.Memory, Own: own.Pod}
	lacks := view.Lacks(e.pod)
	if len(lacks) == 0 && err == nil {
		q.say(e, Admit, "", "")
		return
	}
	message := "the pod was running before and runs on with what is recorded as its own"
	if len(lacks) > 0 {
		message += "; it lacks " + strings.Join(lacks, ", ")
	}
	if err != nil {
		message += "; no more is to be had: " + err.Error()
	}
	q.say(e, Admit, ReasonAdopted, message+"; to have it placed anew, delete and create it again")
}
