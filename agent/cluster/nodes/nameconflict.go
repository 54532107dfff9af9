package nodes

import (
	"fmt"
	"slices"
	"time"

	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/numalet/numalet/agent/node/nodestatus"
)

// ReasonNameShared is the reason of the event that two machines use the node's name.
const ReasonNameShared = "NodeNameShared"

// sharedAgain is the time after which this is reported again.
const sharedAgain = time.Hour

// nameConflict detects another machine that writes the status of this node. A foreign status is
// replaced at once, but once per period if it comes back again and again: two agents of one name
// must not keep the API server busy.
type nameConflict struct {
	written  *v1.NodeStatus // what was written last; nil: nothing was
	pace     *rate.Limiter
	found    int // how often another machine's status was there
	reported time.Time
}

func newNameConflict(period time.Duration) nameConflict {
	return nameConflict{pace: rate.NewLimiter(rate.Every(period), 3)}
}

// wrote records the status that this agent wrote, and reports whether it had written one before.
func (c *nameConflict) wrote(s v1.NodeStatus) (before bool) {
	before = c.written != nil
	c.written = &s
	return before
}

// waits reports whether a status is not written now: it equals the last one that was written, and
// others have overwritten that too often.
func (c *nameConflict) waits(next v1.NodeStatus) bool {
	return c.written != nil && !nodestatus.Changed(timeless(*c.written), timeless(next)) && !c.pace.Allow()
}

// timeless returns a status without the times of its conditions.
func timeless(s v1.NodeStatus) v1.NodeStatus {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		s.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	return s
}

// sees compares the status at the API server with this agent's. It returns a message if another
// machine writes there; empty: there is nothing to report. The first time it may come from a
// backup.
func (c *nameConflict) sees(name string, there, own v1.NodeStatus) string {
	if c.written == nil || there.NodeInfo.BootID == "" ||
		there.NodeInfo.BootID == own.NodeInfo.BootID {
		return ""
	}
	if c.found++; c.found < 2 || !c.reported.IsZero() && time.Since(c.reported) < sharedAgain {
		return ""
	}
	c.reported = time.Now()
	return fmt.Sprintf("Two machines have the name of node %s: its status is overwritten by one with "+
		"system UUID %q and boot id %q, this one has %q and %q. Both run its pods. Give one of them "+
		"another name (--hostname-override) and credentials of its own", name,
		there.NodeInfo.SystemUUID, there.NodeInfo.BootID, own.NodeInfo.SystemUUID,
		own.NodeInfo.BootID)
}
