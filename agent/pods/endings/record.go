package endings

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/numalet/numalet/agent/pods/pod"
	"github.com/numalet/numalet/internal/await"
	"github.com/numalet/numalet/internal/complaint"
	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/internal/oneline"
)

// File has the endings, in the agent's root.
const File = "numalet_endings"

const (
	// maxFile bounds the file. Of more endings than mostKept, which no node has, the oldest are forgotten.
	maxFile  = 16 << 20
	mostKept = 4096
	// maxMessage bounds the message of one.
	maxMessage = 2 << 10
)

// entry is an ending in the file.
type entry struct {
	UID      types.UID `json:"uid"`
	Reason   string    `json:"reason"`
	Message  string    `json:"message"`
	OwnLimit bool      `json:"ownLimit,omitempty"`
	Short    string    `json:"short,omitempty"`
	// Until is when the pod's grace period ends; zero: it is the pod's own, and begins again.
	Until time.Time `json:"until,omitzero"`
	// BootID names the only boot in which the ending counts; "": it counts in every one.
	BootID string `json:"bootID,omitempty"`
}

func (e entry) why() pod.Why {
	return pod.Why{Reason: e.Reason, Message: e.Message, OwnLimit: e.OwnLimit}
}

func entryOf(one Ending, until time.Time) entry {
	return entry{UID: one.UID, Reason: one.Why.Reason, Message: oneline.Head(one.Why.Message, maxMessage),
		OwnLimit: one.Why.OwnLimit, Short: one.Short, Until: until}
}

// record is the file. It is not synced: it is for a crash of the agent, not of the machine, after which nothing
// of a pod runs. One goroutine owns it.
type record struct {
	path, boot string
	all        []entry // the oldest first
	behind     bool    // the file has others, since it could not be written
	wrong      complaint.Complaint[string]
}

// take writes what is news.
func (r *record) take(ctx context.Context, all []news, known func(types.UID) bool) {
	changed := r.merge(all, time.Now())
	if !changed && !r.behind {
		return
	}
	r.all = slices.DeleteFunc(r.all, func(e entry) bool { return !known(e.UID) })
	r.all = r.all[max(0, len(r.all)-mostKept):]
	raw, err := json.Marshal(r.all)
	if err == nil {
		err = files.Replace(r.path, raw)
	}
	r.behind = err != nil
	if r.wrong.Begins(complaint.Of(err)) {
		klog.FromContext(ctx).Error(err, "Pods that are about to end may run again if the agent is killed")
	}
}

// merge takes in news, and reports whether it changed anything.
func (r *record) merge(all []news, now time.Time) (changed bool) {
	at := make(map[types.UID]int, len(r.all))
	for i, e := range r.all {
		at[e.UID] = i
	}
	for _, one := range all {
		i, known := at[one.UID]
		switch {
		case one.over && known:
			r.all[i].UID = "" // until all is merged
			delete(at, one.UID)
			changed = true
		case known:
			until := await.Earlier(r.all[i].Until, r.entry(one.Ending, now).Until)
			changed = changed || !until.Equal(r.all[i].Until)
			r.all[i].Until = until
		case one.over, one.Scope == Run:
		default:
			at[one.UID] = len(r.all)
			r.all = append(r.all, r.entry(one.Ending, now))
			changed = true
		}
	}
	r.all = slices.DeleteFunc(r.all, func(e entry) bool { return e.UID == "" })
	return changed
}

func (r *record) entry(one Ending, now time.Time) entry {
	var until time.Time
	if one.Grace > 0 {
		until = now.Add(one.Grace)
	}
	e := entryOf(one, until)
	if one.Scope == Boot {
		e.BootID = r.boot
	}
	return e
}
