package nodes

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/node"
)

// ReasonNameShared is the reason of the event that two machines have the name of the node.
const ReasonNameShared = "NodeNameShared"

// sharedAgain is how long after that was told it is told again.
const sharedAgain = time.Hour

// rival is what is known of those who write another status of the node than this agent. What it
// has written is put right at once, and what is overwritten again and again each period: two agents
// of one name are not to keep the API server busy.
type nameConflict struct {
	written *v1.NodeStatus // what was written last; nil: nothing was
	pace    *rate.Limiter
	found   int // how often another machine's status was there
	told    time.Time
}

func newNameConflict(period time.Duration) nameConflict {
	return nameConflict{pace: rate.NewLimiter(rate.Every(period), 3)}
}

// wrote takes what the API server has from this agent, and reports whether it had something before.
func (r *nameConflict) wrote(s v1.NodeStatus) (before bool) {
	before = r.written != nil
	r.written = &s
	return before
}

// waits reports whether a status is not written now: it is the one that was written last, and
// somebody has overwritten it too often.
func (r *nameConflict) waits(next v1.NodeStatus) bool {
	return r.written != nil && !node.Changed(timeless(*r.written), timeless(next)) && !r.pace.Allow()
}

// timeless is a status whose conditions do not tell since when they hold.
func timeless(s v1.NodeStatus) v1.NodeStatus {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return s
}

// sees takes the status that is there and this agent's. It returns what is to be told of another
// machine that writes to it; "": nothing. The first time it may be what a backup had.
func (r *nameConflict) sees(name string, there, own v1.NodeStatus) string {
	if r.written == nil || there.NodeInfo.BootID == "" ||
		there.NodeInfo.BootID == own.NodeInfo.BootID {
		return ""
	}
	if r.found++; r.found < 2 || !r.told.IsZero() && time.Since(r.told) < sharedAgain {
		return ""
	}
	r.told = time.Now()
	return fmt.Sprintf("Two machines have the name of node %s: its status is overwritten by one with "+
		"system UUID %q and boot id %q, this one has %q and %q. Both run its pods. Give one of them "+
		"another name (--hostname-override) and credentials of its own", name,
		there.NodeInfo.SystemUUID, there.NodeInfo.BootID, own.NodeInfo.SystemUUID,
		own.NodeInfo.BootID)
}
