package volume

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/numalet/numalet/cri"
	"github.com/numalet/numalet/topology/podspec"
)

// Objects are the objects of the API server that volumes are made of. An error of them is what the
// pod waits for.
type Objects interface {
	ConfigMap(ctx context.Context, pod *v1.Pod, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, pod *v1.Pod, name string) (*v1.Secret, error)
	// Token is a token of the pod's service account, and when there shall be another.
	Token(ctx context.Context, pod *v1.Pod, want *v1.ServiceAccountTokenProjection) (
		token []byte, renew time.Time, err error)
	// TrustAnchors are certificates in PEM, and when to ask for them again.
	TrustAnchors(ctx context.Context, want *v1.ClusterTrustBundleProjection) (
		pem []byte, again time.Time, err error)
	// Certificate is a key and the chain of certificates that a signer issued for it, in PEM, and
	// when to ask again.
	Certificate(ctx context.Context, pod *v1.Pod, want *v1.PodCertificateProjection) (
		key, chain []byte, again time.Time, err error)
}

const (
	// maxContent is how many bytes the files of one volume take at most together, with their names.
	// An object of the API has at most 1 MiB, and a volume is made of a few.
	maxContent = 16 << 20
	// perFile is what a file takes beside its name and its bytes.
	perFile = 64
	// maxPodContent is the same for all volumes of a pod: they are in memory that no limit of the
	// pod's counts.
	maxPodContent = 64 << 20
)

// content is what a volume is to have.
type content struct {
	files map[string]file // by path in the volume
	// again is when it is to be made again although nothing changed; zero: never.
	again time.Time
}

// room is how much may still be made for a volume, and for all volumes of its pod. It is taken before
// a file is kept, so that what is too much is never in memory; what fails gives nothing back, so that
// a pod's volumes together cost no more than its room.
type room struct {
	volume int
	pod    *int
	over   bool // there was none for a file
}

// take takes the room of a file.
func (r *room) take(path string, data int) error {
	need := perFile + len(path) + data
	r.over = r.over || need > r.volume || need > *r.pod
	switch {
	case need > r.volume:
		return fmt.Errorf("its files, with their names, take more than %d bytes; use fewer sources",
			maxContent)
	case need > *r.pod:
		return fmt.Errorf("its files, with their names, take more than what other volumes leave of "+
			"the %d bytes for all volumes of a pod; use fewer volumes", maxPodContent)
	}
	r.volume -= need
	*r.pod -= need
	return nil
}

// file is one that the agent writes into a volume.
type file struct {
	data []byte
	mode fs.FileMode
	user *int64 // nil: the agent's own
}

// maker makes the content of a volume.
type maker func(ctx context.Context, from sources, t target) (content, error)

// sources are what contents are made from.
type sources struct {
	objects Objects // nil: there is no API server
	facts   cri.Facts
	room    *room
}

// alone is the content of one file.
func (s sources) alone(path string, f file, again time.Time) (content, error) {
	return content{map[string]file{path: f}, again}, s.room.take(path, len(f.data))
}

// written are volumes with what the agent writes into them, all files at once. Those that may have
// secrets are in memory; without root, which could not mount that, they are on the disk.
func written(field, name string, medium v1.StorageMedium, content maker) plugin {
	return plugin{from: inPods, field: field, name: name, relabel: true, written: true,
		setUp: func(ctx context.Context, v *Volumes, t target) (time.Time, error) {
			c, err := content(ctx, sources{v.cfg.Objects, v.cfg.Facts(),
				&room{volume: maxContent, pod: t.room}}, t)
			if err != nil {
				return time.Time{}, err
			}
			dir := v1.EmptyDirVolumeSource{Medium: medium}
			if !v.asRoot {
				dir.Medium = v1.StorageMediumDefault
			}
			bare := dir.Medium != v1.StorageMediumDefault && !t.have.mounted
			if bare || !t.have.complete {
				if err := v.makeEmptyDir(t, dir, v.cfg.Memory()); err != nil {
					return time.Time{}, err
				}
			}
			last := v.last.take(t.pod.UID, t.path())
			now, err := replace(t.path(), c.files, owner{v.asRoot, groupOf(t.pod)}, last)
			if err == nil {
				v.last.keep(t.pod.UID, t.path(), now)
			}
			return c.again, err
		}}
}

// groupOf is the pod's fsGroup, if any.
func groupOf(pod *v1.Pod) *int64 {
	if sc := pod.Spec.SecurityContext; sc != nil {
		return sc.FSGroup
	}
	return nil
}

// modeOf is a file's own mode, else that of the volume.
func modeOf(own *int32, volume fs.FileMode) fs.FileMode {
	return fs.FileMode(ptr.Deref(own, int32(volume)))
}

// credential is a file that only the pod's processes read, as far as it is known who they are: by
// the one user of all containers, or by the pod's group.
func credential(pod *v1.Pod, data []byte, mode fs.FileMode) file {
	f := file{data: data, mode: mode, user: oneUser(pod)}
	if f.user != nil || groupOf(pod) != nil {
		f.mode = 0o600
	}
	return f
}

// oneUser is the user that every container of the pod runs as; nil: there is no such, or the image
// says it.
func oneUser(pod *v1.Pod) *int64 {
	var shared, user *int64
	if sc := pod.Spec.SecurityContext; sc != nil {
		shared = sc.RunAsUser
	}
	same := func(own *v1.SecurityContext) bool {
		its := shared
		if own != nil && own.RunAsUser != nil {
			its = own.RunAsUser
		}
		if its == nil || user != nil && *user != *its {
			return false
		}
		user = its
		return true
	}
	for c := range podspec.All(pod) {
		if !same(c.SecurityContext) {
			return nil
		}
	}
	return user
}
