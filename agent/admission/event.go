package admission

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/admission/decide"
	"github.com/numalet/numalet/agent/allocation"
)

// event is one of the types below: something that happens to one pod. record.step is the table of
// all of them.
type event any

type (
	// resubmitted: the pod requests something else; planned is that with the resources that it was
	// decided on with.
	resubmitted struct{ demand, planned decide.Demand }
	// left: the pod has begun to terminate; ended: by itself.
	left struct{ ended bool }
	// gone: what the pod has is given back.
	gone struct{}
	// late: the time of the state is over. words say what takes so long, with a reason; "": nothing to
	// say.
	late struct{ reason, words string }
	// overdue: the pod may wait no longer.
	overdue struct{}
	// moved: a change that the pod may have waited for.
	moved struct{}
	// remade: the machine would not give the pod its reservation any more.
	remade struct{}

	// considered: the pod had its turn, and other pods were not looked at yet.
	considered struct{ decide.Decision }
	// decided: the pod had its turn. contested: it claims devices of which plugins have a
	// preference.
	decided struct {
		decide.Decision
		contested bool
	}
	// learned: what the pod lacks is asked about at its turn.
	learned struct{ lack decide.Lack }
	// ranked: another pod's devices have to be known before the pod is decided on.
	ranked struct {
		after types.UID
		turn  bool // it waits for its turn
		// guess is the place that the pod would get; without containers: none.
		guess allocation.Pod
	}

	// advised: a plugin answered, or failed to answer, which devices it prefers.
	advised struct {
		key allocation.AskKey
		ids []string
		err error
	}
	// looked: what was stale has been read again, or it is known what the pod needs.
	looked struct{}
	// allocated: all plugins have answered and the assignment is recorded.
	allocated struct{ pod allocation.Pod }
	// failed: a plugin or the store failed; pod has the answers that did come.
	failed struct {
		pod   allocation.Pod
		err   error
		began time.Time
	}
	// dropped: the store has dropped the pod, or failed to.
	dropped struct{ err error }

	// displaced: a pod that comes before it takes what it claims.
	displaced struct{ broken bool }
	// exchanged: it claims other devices on the same NUMA nodes.
	exchanged struct{ pod allocation.Pod }
	// outguessed: another pod gets what it had as a guess.
	outguessed struct{}
	// unheard: a plugin did not answer about another pod in time.
	unheard struct {
		key allocation.AskKey
		err error
	}
)

// effect is one of the types below: something that a step wants done. The queue carries out the
// effects of a step in their order, after the pod has its new record.
type effect any

type (
	// ask has a plugin asked which devices it prefers.
	ask struct{ allocation.Ask }
	// inquire waits until it is known what the pod needs.
	inquire struct{ until time.Time }
	// reread has what is stale read again.
	reread struct{ what decide.Stale }
	// assign has the plugins' Allocate called and the assignment recorded.
	assign struct{ pod allocation.Pod }
	// dropRecord has the store drop what it has of the pod.
	dropRecord struct{}
	// forgo has what the pod needs followed no longer.
	forgo struct{}
	// cancel ends the call that is under way.
	cancel struct{}

	// say reports an outcome. ignored are the preferences that were not followed; unplanned: no plan
	// led to the outcome; unprepared: a driver did not prepare a claim.
	say struct {
		outcome         decide.Outcome
		reason, message string
		ignored         []string
		unplanned       bool
		unprepared      bool
	}
	// sayWait reports that the pod waits, with the pods whose end it waits for.
	sayWait struct{ decide.Decision }
	// sayReject reports a rejection.
	sayReject struct{ *allocation.Rejection }
	// forget removes the pod, which has no record, and reports it released.
	forget struct{}

	// adopt has the pod decided on as one that runs on without a plan, for err.
	adopt struct{ err error }
	// preempt has the victims of a decision end.
	preempt struct{ decide.Decision }
	// free has the pods that wait look whether they have a place.
	free struct{}
	// outguess takes from other pods the guesses that this one gets.
	outguess struct{ taken allocation.Taken }
	// unhear has nobody in line wait for a plugin that did not answer in time.
	unhear struct {
		key allocation.AskKey
		err error
	}
)
