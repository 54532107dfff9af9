package claims

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/numalet/numalet/internal/oneline"
)

// longCall is how long a call may take before it is worth a word.
const longCall = 10 * time.Second

// Stuck says of each claim that keeps a pod from its end what its drivers do not do, since when and why,
// and what can be done.
func Stuck(all []Row, pod types.UID, now time.Time) (out []string) {
	for _, r := range all {
		if !r.ended(pod) {
			continue
		}
		for _, d := range r.Drivers {
			if what := d.unprepares(now); what != "" {
				out = append(out, fmt.Sprintf("claim %s, driver %s: %s, or give the claim up: numalet claim "+
					"forget %s/%[1]s", r.Name, d.Driver, what, r.Namespace))
			}
		}
	}
	return out
}

// ended reports whether the pod has ended and waits for the claim to be unprepared.
func (r Row) ended(pod types.UID) bool {
	for _, u := range r.Users {
		if u.UID == pod {
			return u.Ended
		}
	}
	return false
}

// unprepares says why the driver has not unprepared a claim, and what can be done; "": that does not take
// long.
func (d DriverRow) unprepares(now time.Time) string {
	since := duration.HumanDuration(now.Sub(d.Since))
	switch {
	case d.State == notCalled:
		return ""
	case !d.Registered:
		return "it is not registered, and has to unprepare the claim; start it"
	case d.LastError != "":
		return fmt.Sprintf("it has not unprepared the claim since %s ago, at last: %s; it is tried again. Look "+
			"at its log", since, oneline.Of(d.LastError))
	case d.State == string(StageUnpreparing) && now.Sub(d.Since) >= longCall:
		return fmt.Sprintf("it has not answered NodeUnprepareResources since %s ago; look at its log", since)
	}
	return ""
}
