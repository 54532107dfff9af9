package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

const (
	fileName = "userns"
	// maxFile bounds such a file in bytes.
	maxFile = 4 << 10
)

// Config says which ids there are.
type Config struct {
	// Pods is the directory with a directory for each pod.
	Pods string
	// Host is the block of the host's ids for pods.
	Host Block
	// PerPod is the number of ids of a pod, a multiple of 65536.
	PerPod uint32
	// Begin is the number of the range to start with.
	Begin int
}

// Block is a block of ids.
type Block struct{ First, Length uint32 }

// Ranges records which pod has which ids.
type Ranges struct {
	cfg Config

	mu   sync.Mutex
	pods map[types.UID]given
	// taken counts the pods of each range: files from another configuration may overlap.
	taken map[int]int
	next  int
}

// given is the range of a pod, or why it is not known.
type given struct {
	ids *files.Record[cri.IDs]
	err error
}

// New reads the ranges of existing pods.
func New(c Config) (*Ranges, error) {
	if c.PerPod == 0 || c.Host.Length < c.PerPod {
		return nil, fmt.Errorf("%d ids are fewer than the %d of one pod with a user namespace; "+
			"see userNamespaces.idsPerPod", c.Host.Length, c.PerPod)
	}
	r := &Ranges{cfg: c, pods: map[types.UID]given{}, taken: map[int]int{}}
	r.next = c.Begin % r.count()
	entries, err := os.ReadDir(c.Pods)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for the user namespaces of pods: %w", err)
	}
	for _, entry := range entries {
		uid := types.UID(entry.Name())
		switch ids, err := r.read(uid); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			r.pods[uid] = given{err: err}
		default:
			r.keepLocked(uid, r.record(uid, ids))
		}
	}
	return r, nil
}

// count returns the number of ranges.
func (r *Ranges) count() int { return int(r.cfg.Host.Length / r.cfg.PerPod) }

// Of returns the ids of a pod, and assigns some if it has none; nil: it uses the host's.
func (r *Ranges) Of(pod *v1.Pod) (*cri.IDs, error) {
	if !cri.OwnUsers(pod) {
		return nil, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if has, ok := r.pods[pod.UID]; ok {
		if has.err != nil {
			return nil, fmt.Errorf("%w; delete the pod", has.err)
		}
		return ptr.To(has.ids.Get()), nil
	}
	ids, err := r.chooseLocked()
	if err != nil {
		return nil, err
	}
	record := r.record(pod.UID, cri.IDs{})
	if err = os.MkdirAll(filepath.Dir(r.file(pod.UID)), 0o750); err == nil {
		err = record.Set(ids)
	}
	if err != nil {
		return nil, fmt.Errorf("write the ids of a pod: %w", err)
	}
	r.keepLocked(pod.UID, record)
	return &ids, nil
}

// Release frees the ids of a pod that has left nothing on the node.
func (r *Ranges) Release(pod types.UID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.pods[pod]; !ok {
		return nil
	}
	if err := files.Remove(r.file(pod)); err != nil {
		return fmt.Errorf("release the ids of pod %s: %w", pod, err)
	}
	r.dropLocked(pod)
	return nil
}

// dropLocked forgets the ids of a pod.
func (r *Ranges) dropLocked(pod types.UID) {
	has, ok := r.pods[pod]
	delete(r.pods, pod)
	if !ok || has.err != nil {
		return
	}
	for _, at := range r.rangesOf(has.ids.Get()) {
		if r.taken[at]--; r.taken[at] == 0 {
			delete(r.taken, at)
		}
	}
}

// chooseLocked returns the next free range.
func (r *Ranges) chooseLocked() (cri.IDs, error) {
	for i := range r.count() {
		at := (r.next + i) % r.count()
		if r.taken[at] == 0 {
			r.next = (at + 1) % r.count()
			return cri.IDs{
				First: r.cfg.Host.First + uint32(at)*r.cfg.PerPod, Length: r.cfg.PerPod,
			}, nil
		}
	}
	return cri.IDs{}, fmt.Errorf("all %d ranges of ids for user namespaces are taken; set "+
		"hostUsers to true, or give the node more ids", r.count())
}

func (r *Ranges) keepLocked(pod types.UID, ids *files.Record[cri.IDs]) {
	r.pods[pod] = given{ids: ids}
	for _, at := range r.rangesOf(ids.Get()) {
		r.taken[at]++
	}
}

// rangesOf returns the ranges that the ids overlap: with another configuration they were divided
// differently.
func (r *Ranges) rangesOf(ids cri.IDs) (out []int) {
	first := uint64(ids.First)
	last := first + uint64(ids.Length) - 1
	begin, size := uint64(r.cfg.Host.First), uint64(r.cfg.PerPod)
	if last < begin {
		return nil
	}
	for at := (max(first, begin) - begin) / size; at <= (last-begin)/size &&
		at < uint64(r.count()); at++ {
		out = append(out, int(at))
	}
	return out
}

// content is the content of the file, in the kubelet's format.
type content struct {
	UIDs []mapping `json:"uidMappings"`
	GIDs []mapping `json:"gidMappings"`
}

type mapping struct {
	Host      uint32 `json:"hostId"`
	Container uint32 `json:"containerId"`
	Length    uint32 `json:"length"`
}

func (r *Ranges) file(pod types.UID) string {
	return filepath.Join(r.cfg.Pods, string(pod), fileName)
}

// record is the pod's file, which has these ids now.
func (r *Ranges) record(pod types.UID, ids cri.IDs) *files.Record[cri.IDs] {
	return files.NewRecordOf(r.file(pod), maxFile, ids, func(ids cri.IDs) ([]byte, error) {
		one := []mapping{{Host: ids.First, Length: ids.Length}}
		return json.Marshal(content{one, one})
	})
}

func (r *Ranges) read(pod types.UID) (cri.IDs, error) {
	raw, err := files.Read(r.file(pod), maxFile)
	if err != nil {
		return cri.IDs{}, fmt.Errorf("read the ids of pod %s: %w", pod, err)
	}
	ids, err := parse(raw)
	if err != nil {
		return cri.IDs{}, fmt.Errorf("read the ids of pod %s in %s: %w", pod, r.file(pod), err)
	}
	return ids, nil
}

// parse parses a file: one block of users and the same of groups, starting at the pod's id 0.
func parse(raw []byte) (cri.IDs, error) {
	var has content
	if err := json.Unmarshal(raw, &has); err != nil {
		return cri.IDs{}, err
	}
	if len(has.UIDs) != 1 || len(has.GIDs) != 1 || has.UIDs[0] != has.GIDs[0] {
		return cri.IDs{}, errors.New("it has not one block of users with the same of groups")
	}
	m := has.UIDs[0]
	if m.Container != 0 {
		return cri.IDs{}, fmt.Errorf("%+v is no range of a pod", m)
	}
	return checked(cri.IDs{First: m.Host, Length: m.Length})
}

// checked returns ids that can be a pod's.
func checked(ids cri.IDs) (cri.IDs, error) {
	switch {
	case ids.Length == 0 || ids.Length%65536 != 0 || ids.First < 65536:
		return cri.IDs{}, fmt.Errorf("%+v is no range of a pod", ids)
	case uint64(ids.First)+uint64(ids.Length) > 1<<32:
		return cri.IDs{}, fmt.Errorf("%+v is more ids than there are", ids)
	}
	return ids, nil
}
