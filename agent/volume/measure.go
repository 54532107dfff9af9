package volume

import (
	"context"
	"errors"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/stats/diskusage"
)

// measureWait bounds the measurement of one volume.
const measureWait = 2 * time.Second

// Measured counts volumes, and has the space of those with claims.
type Measured struct {
	// Desired counts the volumes that the pods use, and Actual those that are set up, by their
	// type's name.
	Desired, Actual map[string]int
	Claims          []ClaimRoom // in the order of the pods, each claim once
}

// ClaimRoom is the space on the volume that a claim is bound to.
type ClaimRoom struct {
	Namespace, Claim string
	Room             diskusage.Room
	Pods             []PodVolume // the pods with the claim, in their order
}

// PodVolume is a volume of a pod, by its name in the pod.
type PodVolume struct {
	Pod    types.UID
	Volume string
}

// Measure counts the volumes of the pods and measures those with claims. It leaves out a volume
// whose file system does not answer. It calls looked for each measurement with the method and the
// time taken.
func (v *Volumes) Measure(ctx context.Context, pods []*v1.Pod,
	looked func(by string, took time.Duration)) Measured {
	out := Measured{Desired: map[string]int{}, Actual: map[string]int{}}
	seen := map[string]int{"": -1} // index in Claims; negative: not there
	silent := map[string]bool{}    // drivers that do not answer
	for _, pod := range pods {
		dir, err := v.podDir(pod.UID)
		if err != nil {
			continue
		}
		all, err := v.usedNow(pod)
		if err != nil {
			continue
		}
		for _, u := range all {
			out.Desired[u.fullName()]++
			if !u.isThere(dir) {
				continue
			}
			out.Actual[u.fullName()]++
			id := ""
			if u.isMeasured() {
				id = pod.Namespace + "/" + u.claim
			}
			at, known := seen[id]
			if !known {
				at = -1
				began := time.Now()
				if room, by, err := (disks{v}).measure(ctx, pod, u, dir, silent); err == nil {
					looked(by, time.Since(began))
					at = len(out.Claims)
					out.Claims = append(out.Claims,
						ClaimRoom{Namespace: pod.Namespace, Claim: u.claim, Room: room})
				}
				seen[id] = at
			}
			if at >= 0 {
				c := &out.Claims[at]
				c.Pods = append(c.Pods, PodVolume{pod.UID, u.volume.Name})
			}
		}
	}
	return out
}

// isThere reports whether the volume was made. One outside the pod's directory counts as made if
// that directory exists.
func (u used) isThere(podDir string) bool {
	path := u.place().ready(podDir, u.plugin.written)
	if u.plugin.path != nil {
		path = podDir
	}
	_, err := os.Stat(path)
	return err == nil
}

// isMeasured reports whether the volume has room of its own: it is a claim's, and neither a directory
// nor a device of the host.
func (u used) isMeasured() bool {
	return u.claim != "" && (u.plugin.path == nil || u.facts().driver != "")
}

// measure returns the space on a volume, and by what it was measured: its file system, or its driver.
// A driver that does not answer in time is silent from then on, and not asked.
func (v disks) measure(ctx context.Context, pod *v1.Pod, u used, dir string,
	silent map[string]bool) (room diskusage.Room, by string, err error) {
	driver := u.facts().driver
	if driver == "" {
		path := u.path(dir)
		room, err = v.roomOf(ctx, path, func() (diskusage.Room, error) {
			return diskusage.Filesystem(path)
		})
		return room, "statfs", err
	}
	if silent[driver] || v.cfg.CSI == nil {
		return room, driver, context.DeadlineExceeded
	}
	room, err = v.roomOfCSI(ctx, pod, u)
	silent[driver] = errors.Is(err, context.DeadlineExceeded)
	return room, driver, err
}

// roomOf calls measure for what is at path, and waits for it at most measureWait.
func (f filesystems) roomOf(ctx context.Context, path string,
	measure func() (diskusage.Room, error)) (diskusage.Room, error) {
	ctx, cancel := context.WithTimeout(ctx, measureWait)
	defer cancel()
	found := make(chan diskusage.Room, 1)
	err := f.calls.do(ctx, "measure "+path, func() error {
		room, err := measure()
		found <- room
		return err
	})
	if err != nil {
		return diskusage.Room{}, err
	}
	select {
	case room := <-found:
		return room, nil
	default: // an earlier call came back
		return diskusage.Room{}, context.DeadlineExceeded
	}
}
