package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/internal/files"
)

// Adopted is a running pod whose file was lost, unusable or wrong, and has the sandbox's ids again.
type Adopted struct {
	Pod types.UID
	IDs cri.IDs
	// Was says what was wrong with the file.
	Was error
	// Err says why the file is not written again; the pod has the ids nevertheless.
	Err error
}

// Adopt gives running pods the ids that their sandboxes have, whatever their files say, and writes
// these again. Call it with what the runtime has before the first call of Of.
func (r *Ranges) Adopt(all []cri.Pod) (adopted []Adopted) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, pod := range all {
		ids, known := idsOf(pod)
		if !known {
			continue
		}
		has, recorded := r.pods[pod.UID]
		one := Adopted{Pod: pod.UID, IDs: ids, Was: has.err}
		switch {
		case !recorded:
			one.Was = errors.New("it is missing")
		case has.err == nil && has.ids.Get() == ids:
			continue
		case has.err == nil:
			one.Was = fmt.Errorf("it says %+v", has.ids.Get())
		}
		one.Err = r.writeAgain(pod.UID, ids)
		r.dropLocked(pod.UID)
		r.keepLocked(pod.UID, r.record(pod.UID, ids))
		adopted = append(adopted, one)
	}
	return adopted
}

// idsOf returns the ids of a running pod's newest sandbox that has any.
func idsOf(pod cri.Pod) (cri.IDs, bool) {
	if !pod.Running() {
		return cri.IDs{}, false // its ids may have been released
	}
	for _, s := range pod.Sandboxes {
		if ids, err := checked(s.IDs); err == nil {
			return ids, true
		}
	}
	return cri.IDs{}, false
}

// writeAgain writes a pod's file. Anything but a file in its place is moved aside.
func (r *Ranges) writeAgain(pod types.UID, ids cri.IDs) error {
	path := r.file(pod)
	if err := files.MakeWay(path); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return err
	}
	return r.record(pod, cri.IDs{}).Set(ids)
}
