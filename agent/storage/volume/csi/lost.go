package csi

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// judge tells of places that are lost for good: the node's status does not name them, and there is no
// pod any more that may.
func (r *recovery) judge() {
	for _, message := range r.lostForGood() {
		r.tell(message)
	}
}

func (r *recovery) lostForGood() (out []string) {
	if r.held() != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, dir := range slices.Sorted(maps.Keys(r.all)) {
		if one := r.all[dir]; r.attachedKnown && !one.lost && len(one.uses) == 0 {
			one.lost = true
			out = append(out, one.remedy())
		}
	}
	return out
}

// Amiss says, for each volume whose record is lost, what is to be done. With a pod, it lists only the
// volumes that the pod has or that are of a driver that it uses; pod "": all.
func (r *recovery) Amiss(pod types.UID) (out []string) {
	drivers := map[string]bool{}
	if !r.isEmpty() {
		for _, k := range r.book.UsedBy(pod) {
			drivers[k.Driver] = true
		}
	}
	for _, one := range r.list() {
		mine := slices.ContainsFunc(one.uses, func(u use) bool { return u.pod == pod })
		switch {
		case pod != "" && !mine && (one.used() || one.block() != "" || !drivers[one.driver()]):
		case len(one.uses) == 0:
			out = append(out, one.remedy())
		default:
			out = append(out, fmt.Sprintf("volume %s: its record %s is lost (%v); it stays mounted, and is "+
				"known again when the API server tells what the pod's claim is bound to", one.uses[0].name,
				one.file(), one.err))
		}
	}
	return out
}

// driver is the driver of the directory where a file system is staged.
func (r remnant) driver() string { return filepath.Base(filepath.Dir(r.dir)) }

// remedy says how to end a volume that nothing names.
func (r remnant) remedy() string {
	which := fmt.Sprintf("that of driver %s whose handle has the SHA-256 sum %s", r.driver(),
		filepath.Base(r.dir))
	driver := r.driver()
	if r.block() != "" || driver == formerDir {
		driver = "DRIVER"
		which = "spec.csi of persistent volume " + cmp.Or(r.block(), filepath.Base(r.dir))
	}
	return fmt.Sprintf("a CSI volume may be staged at %s, and nobody knows which: its record %s is lost "+
		"(%v). It stays as it is. To end it, write {\"driverName\":%q,\"volumeHandle\":\"HANDLE\"} into the "+
		"record, with %s, and restart the agent", r.place.path, r.file(), r.err, driver, which)
}
