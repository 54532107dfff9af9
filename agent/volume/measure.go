package volume

import (
	"context"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/numalet/numalet/agent/stats/diskusage"
)

// measureWait is how long the room of one volume is waited for.
const measureWait = 2 * time.Second

// Measured is what volumes there are, and how much room those have that claims stand for.
type Measured struct {
	// Desired are those that the pods use, and Actual those of them that are there, by the name of
	// their type.
	Desired, Actual map[string]int
	Claims          []ClaimRoom // in the order of the pods, each claim once
}

// ClaimRoom is the room of what a claim stands for.
type ClaimRoom struct {
	Namespace, Claim string
	Room             diskusage.Room
	Pods             []PodVolume // that have it, in their order
}

// PodVolume is a volume of a pod, by the name that it has there.
type PodVolume struct {
	Pod    types.UID
	Volume string
}

// Measure looks at the volumes of the pods. One whose file system does not answer is left out;
// looked is told how long it took to look at each that a claim stands for, and by what.
func (v *Volumes) Measure(ctx context.Context, pods []*v1.Pod,
	looked func(by string, took time.Duration)) Measured {
	out := Measured{Desired: map[string]int{}, Actual: map[string]int{}}
	seen := map[string]int{"": -1} // where in Claims, negative: not there
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
			out.Desired[u.plugin.name]++
			if !u.isThere(dir) {
				continue
			}
			out.Actual[u.plugin.name]++
			id := ""
			if u.claim != "" && u.plugin.path == nil {
				id = pod.Namespace + "/" + u.claim
			}
			at, known := seen[id]
			if !known {
				at = -1
				began := time.Now()
				if room, err := v.roomOf(ctx, u.path(dir)); err == nil {
					looked("statfs", time.Since(began))
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

// isThere reports whether the volume was made: where it is not in the pod's directory, whether that
// is there.
func (u used) isThere(podDir string) bool {
	path := u.place().ready(podDir, u.plugin.written)
	if u.plugin.path != nil {
		path = podDir
	}
	_, err := os.Stat(path)
	return err == nil
}

// roomOf is the room on the file system that is mounted there.
func (f filesystems) roomOf(ctx context.Context, path string) (diskusage.Room, error) {
	ctx, cancel := context.WithTimeout(ctx, measureWait)
	defer cancel()
	found := make(chan diskusage.Room, 1)
	err := f.calls.do(ctx, "measure "+path, func() error {
		room, err := diskusage.Filesystem(path)
		found <- room
		return err
	})
	if err != nil {
		return diskusage.Room{}, err
	}
	select {
	case room := <-found:
		return room, nil
	default: // it was an earlier call that came back
		return diskusage.Room{}, context.DeadlineExceeded
	}
}
