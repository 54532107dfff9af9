package shutdown

import (
	"errors"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/internal/files"
	"github.com/numalet/numalet/topology/podspec"
)

// MarksFile has the pods that a shutdown ends, in the agent's root.
const MarksFile = "numalet_shutdown_pods"

const (
	// maxMarks bounds the file. Of more pods than mostMarked, which no node has, the oldest are forgotten.
	maxMarks   = 1 << 20
	mostMarked = 4096
)

// Marks remember the pods of the API server that a shutdown ends, from before they end until they are
// gone: an agent that was killed and starts again ends them, whatever their containers have done since. They
// count until the machine has booted. Then nothing of these pods runs, and those whose end the API
// server does not know run again. Static pods have none: they run again whenever the agent starts.
type Marks struct {
	before []mark // what an earlier run has left in this boot
	boot   string
	record *files.Record[marked] // owned by the recorder of the one Manager
}

// marked is the content of the file.
type marked struct {
	BootID string `json:"bootID"`
	Pods   []mark `json:"pods"` // the oldest first
}

// mark is a pod that is to end, and when its grace period ends.
type mark struct {
	UID   types.UID `json:"uid"`
	Until time.Time `json:"until"`
}

// OpenMarks reads what an earlier run of the agent left in its root, if it ran in the same boot. A file
// that cannot be used is moved aside: no pod is marked then beside an error that is files.ErrUnusable.
// Any other error comes without Marks.
func OpenMarks(root, boot string) (*Marks, error) {
	path := filepath.Join(root, MarksFile)
	last, err := files.LoadJSON[marked](path, maxMarks, time.Now())
	if err != nil && !errors.Is(err, files.ErrUnusable) {
		return nil, err
	}
	if last.BootID != boot {
		last.Pods = nil
	}
	return &Marks{before: last.Pods, boot: boot, record: files.NewRecord(path, maxMarks, last)}, err
}

// PendingKill returns what is left of the grace period of a pod that an earlier run of the agent was
// about to end; ok is false if it was not, or if the API server knows that the pod has ended.
func (m *Marks) PendingKill(pod *v1.Pod) (grace time.Duration, ok bool) {
	if podspec.Ended(pod.Status.Phase) {
		return 0, false
	}
	i := slices.IndexFunc(m.before, func(one mark) bool { return one.UID == pod.UID })
	if i < 0 {
		return 0, false
	}
	return max(leastGrace, time.Until(m.before[i].Until)), true
}

// add marks pods durably, and forgets pods that are not known any more.
func (m *Marks) add(more []mark, known func(types.UID) bool) error {
	all := slices.DeleteFunc(slices.Clone(m.record.Get().Pods), func(old mark) bool {
		return !known(old.UID) || slices.ContainsFunc(more, func(n mark) bool { return n.UID == old.UID })
	})
	all = append(all, more...)
	return m.record.Set(marked{m.boot, all[max(0, len(all)-mostMarked):]})
}

// marksOf are the marks of the pods that the effects end.
func marksOf(effects []effect, pods map[types.UID]*v1.Pod, now time.Time) (out []mark) {
	for _, e := range effects {
		if e.action == end && !podspec.IsStatic(pods[e.pod]) {
			out = append(out, mark{e.pod, now.Add(e.grace)})
		}
	}
	return out
}
